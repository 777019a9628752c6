//! UCX's own transfer: active messages from and to device memory, with UCX's defaults.
//!
//! Its settings are those of a whole process, so no frames go over UCX in a process that uses this.

use super::program::{Begin, Told};
use super::side::{Memory, Outcome, Way, tell};
use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use cuda_mem::memory::kind::Device;
use cuda_mem::{Buffer, Context};
use std::time::{Duration, Instant};
use ucx_sys::{
    UCS_PTR_STATUS, Ucp, ucp_address_t, ucp_am_cb_flags, ucp_am_handler_param, ucp_am_handler_param_field as Handler,
    ucp_am_recv_attr_t as Received, ucp_am_recv_param_t, ucp_context_attr_field, ucp_context_attr_t, ucp_context_h,
    ucp_ep_attr_field, ucp_ep_attr_t, ucp_ep_h, ucp_ep_params, ucp_ep_params_field, ucp_feature, ucp_op_attr_t as Op,
    ucp_params, ucp_params_field, ucp_request_param_t, ucp_send_am_flags, ucp_transport_entry_t, ucp_transports_t,
    ucp_worker_attr, ucp_worker_attr_field, ucp_worker_h, ucp_worker_params, ucp_worker_params_field, ucs_memory_type,
    ucs_status_ptr_t, ucs_status_t, ucs_thread_mode_t,
};

/// The number of the active messages.
const MESSAGE: u32 = 1;
/// How long an operation may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A side of UCX's own transfers. All is UCX's until the process ends, which is soon after.
#[derive(Debug)]
pub(super) struct Direct {
    ucp: &'static Ucp,
    context: Context,
    worker: ucp_worker_h,
    /// Null until the first message has come, on the side that answers.
    endpoint: ucp_ep_h,
    /// What has come, told by a function that UCX calls.
    inbox: Box<Inbox>,
    memory: Option<Memory>,
}

/// A message that has come: what receives its bytes, and how many there are.
#[derive(Debug)]
struct Inbox {
    message: Cell<Option<(*mut c_void, usize)>>,
    sender: Cell<ucp_ep_h>,
}

impl Direct {
    pub(super) fn connect(context: &Context, begin: &Begin) -> Outcome<Self> {
        let provider = context.driver().provider();
        if &*provider.library == "softgpu" {
            return Err(
                "UCX needs the software GPU as a library: CUDA_MEM_LIBCUDA must name a libcuda.so.1, a copy of \
                        libsoftgpu.so, beside which LD_LIBRARY_PATH finds libnvidia-ml.so.1"
                    .into(),
            );
        }
        let ucp = Ucp::load()?;
        // UCX uses the context that is current.
        core::mem::forget(context.bind()?);
        let inbox = Box::new(Inbox { message: Cell::new(None), sender: Cell::new(ptr::null_mut()) });
        let worker = worker(ucp, &inbox)?;
        let mut side = Self { ucp, context: context.clone(), worker, endpoint: ptr::null_mut(), inbox, memory: None };
        match &begin.peer {
            Some(address) => side.endpoint = side.endpoint_of(&bytes(address)?)?,
            None => tell(&Told::Waits(side.address()?)),
        }
        Ok(side)
    }

    /// The worker's address, in hexadecimal digits.
    fn address(&self) -> Outcome<String> {
        let field_mask = bits(self.ucp, ucp_worker_attr_field::UCP_WORKER_ATTR_FIELD_ADDRESS)?;
        let mut about = ucp_worker_attr { field_mask, ..Default::default() };
        // SAFETY: the worker is alive; UCX fills the address and its length, which end by the release.
        unsafe {
            check("ucp_worker_query", self.ucp.ucp_worker_query(self.worker, &mut about)?)?;
            let bytes = core::slice::from_raw_parts(about.address.cast::<u8>(), about.address_length);
            let digits = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            self.ucp.ucp_worker_release_address(self.worker, about.address)?;
            Ok(digits)
        }
    }

    fn endpoint_of(&self, address: &[u8]) -> Outcome<ucp_ep_h> {
        let params = ucp_ep_params {
            field_mask: bits(self.ucp, ucp_ep_params_field::UCP_EP_PARAM_FIELD_REMOTE_ADDRESS)?,
            address: address.as_ptr().cast::<ucp_address_t>(),
            ..Default::default()
        };
        let mut endpoint = ptr::null_mut();
        // SAFETY: the worker is alive, and the address is one of UCX's, which this call reads.
        check("ucp_ep_create", unsafe { self.ucp.ucp_ep_create(self.worker, &params, &mut endpoint) }?)?;
        Ok(endpoint)
    }

    /// Lets UCX work until something is true.
    fn progress_until(&self, mut is_true: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
        let begin = Instant::now();
        while !is_true()? {
            // SAFETY: the worker is alive, and this is its thread.
            if unsafe { self.ucp.ucp_worker_progress(self.worker) }? == 0 {
                // The other side may need the processor.
                std::thread::yield_now();
                if begin.elapsed() > PATIENCE {
                    return Err(format!("UCX did nothing for {} s", PATIENCE.as_secs()).into());
                }
            }
        }
        Ok(())
    }

    fn wait(&self, call: &str, request: ucs_status_ptr_t) -> Outcome<()> {
        match UCS_PTR_STATUS(request) {
            ucs_status_t::UCS_INPROGRESS => {}
            status => return check(call, status),
        }
        let mut status = ucs_status_t::UCS_INPROGRESS;
        self.progress_until(|| {
            // SAFETY: the request is UCX's until it is freed.
            status = unsafe { self.ucp.ucp_request_check_status(request) }?;
            Ok(status != ucs_status_t::UCS_INPROGRESS)
        })?;
        // SAFETY: as above; it is freed once.
        unsafe { self.ucp.ucp_request_free(request) }?;
        check(call, status)
    }

    fn send(&self, from: &Buffer<u8, Device>) -> Outcome<()> {
        let params = ucp_request_param_t {
            op_attr_mask: Op::UCP_OP_ATTR_FIELD_FLAGS.0,
            flags: ucp_send_am_flags::UCP_AM_SEND_FLAG_REPLY.0,
            ..Default::default()
        };
        let (address, size) = (ptr::with_exposed_provenance(from.device_pointer() as usize), from.len());
        // SAFETY: the buffer lives until the request is done, which the wait is for.
        let request =
            unsafe { self.ucp.ucp_am_send_nbx(self.endpoint, MESSAGE, ptr::null(), 0, address, size, &params) }?;
        self.wait("ucp_am_send_nbx", request)
    }

    fn receive(&self, to: &Buffer<u8, Device>) -> Outcome<()> {
        self.progress_until(|| Ok(self.inbox.message.get().is_some()))?;
        let Some((data, size)) = self.inbox.message.take() else { return Ok(()) };
        if size != to.len() {
            return Err("a message has another size".into());
        }
        let address = ptr::with_exposed_provenance_mut(to.device_pointer() as usize);
        let params = ucp_request_param_t::default();
        // SAFETY: the message was kept, and is received once; the buffer lives until the request is done.
        let request = unsafe { self.ucp.ucp_am_recv_data_nbx(self.worker, data, address, size, &params) }?;
        self.wait("ucp_am_recv_data_nbx", request)
    }

    fn memory(&self) -> Outcome<&Memory> {
        self.memory.as_ref().ok_or_else(|| "no size was prepared".into())
    }
}

impl Way for Direct {
    fn transport(&self) -> String {
        let mut entries = [ucp_transport_entry_t::default(); 16];
        let release = self.ucp.provider().version.map_or_else(String::new, |release| release.to_string());
        let mut text = format!("UCX {release}, from and to device memory");
        if self.endpoint.is_null() {
            return text;
        }
        let Ok(field_mask) = bits(self.ucp, ucp_ep_attr_field::UCP_EP_ATTR_FIELD_TRANSPORTS) else { return text };
        let mut about = ucp_ep_attr_t {
            field_mask,
            transports: ucp_transports_t {
                entries: entries.as_mut_ptr(),
                num_entries: entries.len() as u32,
                entry_size: size_of::<ucp_transport_entry_t>(),
            },
            ..Default::default()
        };
        // SAFETY: the endpoint is alive, and there is room for so many entries. Their texts are the endpoint's.
        unsafe {
            if self.ucp.ucp_ep_query(self.endpoint, &mut about) == Ok(ucs_status_t::UCS_OK) {
                for entry in &entries[..about.transports.num_entries as usize] {
                    let name = |text: *const _| core::ffi::CStr::from_ptr(text).to_string_lossy();
                    text += &format!(", {}/{}", name(entry.transport_name), name(entry.device_name));
                }
            }
        }
        text
    }

    fn prepare(&mut self, bytes: usize) -> Outcome<()> {
        self.memory = Some(Memory::new(&self.context, bytes)?);
        Ok(())
    }

    fn fill(&mut self, value: u8) -> Outcome<()> {
        self.memory.as_mut().map_or(Ok(()), |memory| memory.fill(value))
    }

    fn ask(&mut self) -> Outcome<()> {
        let memory = self.memory()?;
        self.send(&memory.sent)?;
        self.receive(&memory.arrived)
    }

    fn answer(&mut self) -> Outcome<()> {
        self.receive(&self.memory()?.arrived)?;
        self.endpoint = self.inbox.sender.get();
        self.send(&self.memory()?.arrived)
    }

    fn arrived(&self) -> Outcome<Vec<u8>> {
        Ok(self.memory()?.arrived.to_vec()?)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        // The other side may still need this one's progress.
        let end = Instant::now() + Duration::from_millis(50);
        self.progress_until(|| Ok(Instant::now() > end))
    }
}

/// Makes a context and a worker that gives messages to an inbox.
fn worker(ucp: &'static Ucp, inbox: &Inbox) -> Outcome<ucp_worker_h> {
    let params = ucp_params {
        field_mask: bits(ucp, ucp_params_field::UCP_PARAM_FIELD_FEATURES)?,
        features: bits(ucp, ucp_feature::UCP_FEATURE_AM)?,
        ..Default::default()
    };
    let single = ucp_worker_params {
        field_mask: bits(ucp, ucp_worker_params_field::UCP_WORKER_PARAM_FIELD_THREAD_MODE)?,
        thread_mode: ucs_thread_mode_t::UCS_THREAD_MODE_SINGLE,
        ..Default::default()
    };
    let fields = Handler::UCP_AM_HANDLER_PARAM_FIELD_ID
        | Handler::UCP_AM_HANDLER_PARAM_FIELD_FLAGS
        | Handler::UCP_AM_HANDLER_PARAM_FIELD_CB
        | Handler::UCP_AM_HANDLER_PARAM_FIELD_ARG;
    let handler = ucp_am_handler_param {
        field_mask: bits(ucp, fields)?,
        id: MESSAGE,
        flags: ucp_am_cb_flags::UCP_AM_FLAG_PERSISTENT_DATA.0 | ucp_am_cb_flags::UCP_AM_FLAG_WHOLE_MSG.0,
        cb: Some(on_message),
        arg: ptr::from_ref(inbox).cast_mut().cast(),
    };
    let (major, minor) = (Ucp::OLDEST.major(), Ucp::OLDEST.minor());
    let field_mask = bits(ucp, ucp_context_attr_field::UCP_ATTR_FIELD_MEMORY_TYPES)?;
    let mut about = ucp_context_attr_t { field_mask, ..Default::default() };
    let (mut context, mut worker): (ucp_context_h, ucp_worker_h) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: each structure says which of its fields are set, the places are writable, and the inbox lives on the heap as
    // long as the worker, which ends with the process.
    unsafe {
        check("ucp_init_version", ucp.ucp_init_version(major, minor, &params, ptr::null(), &mut context)?)?;
        check("ucp_context_query", ucp.ucp_context_query(context, &mut about)?)?;
        if about.memory_types & (1 << ucs_memory_type::UCS_MEMORY_TYPE_CUDA.0) == 0 {
            return Err(
                "this UCX takes no memory of devices: it needs its module for CUDA (`pip install libucx-cu13` has \
                        it), which must find libcuda.so.1 and libnvidia-ml.so.1"
                    .into(),
            );
        }
        check("ucp_worker_create", ucp.ucp_worker_create(context, &single, &mut worker)?)?;
        check("ucp_worker_set_am_recv_handler", ucp.ucp_worker_set_am_recv_handler(worker, &handler)?)?;
    }
    Ok(worker)
}

/// Keeps a message for later.
unsafe extern "C" fn on_message(
    inbox: *mut c_void,
    _header: *const c_void,
    _header_size: usize,
    data: *mut c_void,
    size: usize,
    about: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: UCX passes the inbox of this worker, whose thread this is, and what it tells of the message.
    let (inbox, about) = unsafe { (&*inbox.cast::<Inbox>(), &*about) };
    if about.recv_attr & u64::from(Received::UCP_AM_RECV_ATTR_FIELD_REPLY_EP.0) != 0 {
        inbox.sender.set(about.reply_ep);
    }
    inbox.message.set(Some((data, size)));
    ucs_status_t::UCS_INPROGRESS
}

/// The bits as the field of a structure, if the library knows them all.
fn bits<M: ucx_sys::Mask>(ucp: &Ucp, mask: M) -> Outcome<u64> {
    Ok(u64::from(ucp.require(mask)?.value()))
}

fn check(call: &str, status: ucs_status_t) -> Outcome<()> {
    match status {
        ucs_status_t::UCS_OK => Ok(()),
        status => Err(format!("{call}: {}", status.name().map_or_else(|| status.0.to_string(), str::to_owned)).into()),
    }
}

/// The bytes of hexadecimal digits.
fn bytes(digits: &str) -> Outcome<Vec<u8>> {
    (0..digits.len() / 2).map(|at| Ok(u8::from_str_radix(&digits[2 * at..][..2], 16)?)).collect()
}
