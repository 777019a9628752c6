//! Events that processes share.

use crate::error::call;
use crate::memory::descriptor::{Descriptor, DescriptorError, ExportKind, from_driver, to_driver};
use crate::{Context, Event, EventOptions, Result};
use core::ptr;
use cuda_sys::CUipcEventHandle;

impl Event {
    /// Creates an event that other processes can import. It has no time stamps.
    ///
    /// # Errors
    ///
    /// The device cannot share events.
    #[doc(alias = "CU_EVENT_INTERPROCESS")]
    pub fn shareable(context: &Context) -> Result<Self> {
        Self::with_options(context, EventOptions { shareable: true, ..EventOptions::default() })
    }

    /// Exports the event. It must live until others have imported it; each import then keeps it alive.
    ///
    /// # Errors
    ///
    /// The event was not made by [`shareable`](Self::shareable) in this process.
    #[doc(alias = "cuIpcGetEventHandle")]
    pub fn export(&self) -> Result<Descriptor> {
        let mut descriptor = Descriptor::new(ExportKind::Event, self.context())?;
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        let mut handle = CUipcEventHandle::default();
        // SAFETY: `handle` is writable, and the event lives.
        unsafe { call!(cuda.cuIpcGetEventHandle(&mut handle, self.raw())) }?;
        descriptor.payload = from_driver(handle.reserved);
        Ok(descriptor)
    }

    /// Imports an event of another process. Each process can wait for what the other records.
    ///
    /// # Errors
    ///
    /// The descriptor describes no event, belongs to another device, or comes from this process; the event has ended.
    #[doc(alias = "cuIpcOpenEventHandle")]
    pub fn import(context: &Context, descriptor: &Descriptor) -> Result<Self> {
        const CALL: &str = "Event::import";
        descriptor.expect(CALL, ExportKind::Event, context)?;
        if descriptor.claims_own()? {
            return Err(DescriptorError::OwnProcess { call: CALL, kind: ExportKind::Event }.into());
        }
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let (handle, mut raw) = (CUipcEventHandle { reserved: to_driver(descriptor.payload) }, ptr::null_mut());
        // SAFETY: `raw` is writable; the driver checks the handle.
        unsafe { call!(cuda.cuIpcOpenEventHandle(&mut raw, handle)) }?;
        // SAFETY: the driver just created it for this value.
        Ok(unsafe { Self::from_raw(context, raw) })
    }
}
