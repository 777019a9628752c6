//! The calls of UCX: a thin shell around its context, workers, endpoints and listeners. One thread uses them all.

use super::pipe::{ENOUGH, Message};
use crate::error::Cause;
use crate::{Error, Result};
use core::cell::{Cell, RefCell};
use core::ffi::{CStr, c_void};
use core::ptr;
use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::fd::{BorrowedFd, RawFd};
use rustix::net::{SocketAddrAny, addr::SocketAddrStorage};
use std::ffi::CString;
use std::net::SocketAddr;
use ucx_sys::{
    Mask, UCS_PTR_STATUS, Ucp, ucp_am_handler_param, ucp_am_handler_param_field as Handler,
    ucp_am_recv_attr_t as Received, ucp_am_recv_param_t, ucp_config_t, ucp_conn_request_attr,
    ucp_conn_request_attr_field as Request, ucp_conn_request_h, ucp_context_h, ucp_ep_close_flags_t, ucp_ep_h,
    ucp_ep_params, ucp_ep_params_field as Field, ucp_ep_params_flags_field, ucp_err_handler_t, ucp_err_handling_mode_t,
    ucp_feature, ucp_listener_attr, ucp_listener_attr_field, ucp_listener_conn_handler_t, ucp_listener_h,
    ucp_listener_params, ucp_listener_params_field as Listen, ucp_op_attr_t as Op, ucp_params,
    ucp_params_field as Params, ucp_request_param_t, ucp_send_am_flags, ucp_worker_h, ucp_worker_params,
    ucp_worker_params_field, ucs_memory_type, ucs_sock_addr_t, ucs_status_ptr_t, ucs_status_t, ucs_thread_mode_t,
};

/// The number of this crate's active messages.
const MESSAGE: u32 = 1;

/// The loaded library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Library(&'static Ucp);

impl Library {
    pub fn load() -> Result<Self> {
        Ok(Self(Ucp::load()?))
    }

    pub fn release(self) -> String {
        self.0.provider().version.map_or_else(|| "of an unknown release".to_owned(), |release| release.to_string())
    }

    /// A context whose messages use one interface.
    pub fn context(self, interface: &str) -> Result<Context> {
        let ucp = self.0;
        let interface =
            CString::new(interface).map_err(|_| failed("ucp_config_modify", "the interface has a null byte"))?;
        // SAFETY: the names and values are C strings; the parameters say which of their fields are set; the configuration is
        // released once.
        unsafe {
            // CUDA's module would set flags of the program's contexts, and call the driver for each address. The others make a
            // thread, and guesses. A library that was loaded before may refuse: then its settings hold.
            for (name, value) in [(c"MODULES", c"^cuda"), (c"MEMTYPE_CACHE", c"n"), (c"VFS_ENABLE", c"n")] {
                let _ = ucp.ucs_global_opts_set_value(name.as_ptr(), value.as_ptr());
            }
            let mut config: *mut ucp_config_t = ptr::null_mut();
            check(ucp, "ucp_config_read", ucp.ucp_config_read(ptr::null(), ptr::null(), &mut config))?;
            let named = ucp.ucp_config_modify(config, c"NET_DEVICES".as_ptr(), interface.as_ptr());
            let named = check(ucp, "ucp_config_modify(NET_DEVICES)", named);
            let params = ucp_params {
                field_mask: bits(ucp, Params::UCP_PARAM_FIELD_FEATURES)?,
                features: bits(ucp, ucp_feature::UCP_FEATURE_AM | ucp_feature::UCP_FEATURE_WAKEUP)?,
                ..Default::default()
            };
            let mut context = ptr::null_mut();
            let (major, minor) = (Ucp::OLDEST.major(), Ucp::OLDEST.minor());
            let made = named.and_then(|()| {
                check(ucp, "ucp_init_version", ucp.ucp_init_version(major, minor, &params, config, &mut context))
            });
            let _ = ucp.ucp_config_release(config);
            made.map(|()| Context { ucp, context })
        }
    }
}

/// A context of UCX.
#[derive(Debug)]
pub(super) struct Context {
    ucp: &'static Ucp,
    context: ucp_context_h,
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: all workers borrow the context, so they have ended.
        let _ = unsafe { self.ucp.ucp_cleanup(self.context) };
    }
}

/// A worker, with its event.
pub(super) struct Worker<'a> {
    context: &'a Context,
    worker: ucp_worker_h,
    event: RawFd,
}

impl<'a> Worker<'a> {
    fn new(context: &'a Context) -> Result<Self> {
        let ucp = context.ucp;
        let params = ucp_worker_params {
            field_mask: bits(ucp, ucp_worker_params_field::UCP_WORKER_PARAM_FIELD_THREAD_MODE)?,
            thread_mode: ucs_thread_mode_t::UCS_THREAD_MODE_SINGLE,
            ..Default::default()
        };
        let mut made = Self { context, worker: ptr::null_mut(), event: -1 };
        // SAFETY: the context is alive, and the places are writable.
        unsafe {
            check(ucp, "ucp_worker_create", ucp.ucp_worker_create(context.context, &params, &mut made.worker))?;
            check(ucp, "ucp_worker_get_efd", ucp.ucp_worker_get_efd(made.worker, &mut made.event))?;
        }
        Ok(made)
    }

    /// Lets UCX work. Whether something happened.
    pub fn progress(&self) -> bool {
        // SAFETY: the worker is alive, and this is its thread.
        unsafe { self.context.ucp.ucp_worker_progress(self.worker) }.is_ok_and(|count| count > 0)
    }

    /// Prepares a wait for the event. `false`: something has happened already.
    pub fn arm(&self) -> bool {
        // SAFETY: as above.
        let armed = unsafe { self.context.ucp.ucp_worker_arm(self.worker) };
        armed.is_ok_and(|status| status == ucs_status_t::UCS_OK)
    }

    pub fn event(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the worker, which lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.event) }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if !self.worker.is_null() {
            // SAFETY: its endpoints and listeners have ended: their owners drop them first.
            let _ = unsafe { self.context.ucp.ucp_worker_destroy(self.worker) };
        }
    }
}

/// What the callbacks of an endpoint reach.
struct Inbox {
    messages: Sender<Vec<u8>>,
    broken: Cell<Option<Cause>>,
}

impl Inbox {
    /// Only the first cause counts.
    fn break_by(&self, cause: Cause) {
        self.broken.set(self.broken.get().or(Some(cause)));
    }

    fn fail(&self, status: ucs_status_t) {
        self.break_by(match status {
            // If the peer's process ends, UCX reports one of these.
            ucs_status_t::UCS_ERR_CONNECTION_RESET
            | ucs_status_t::UCS_ERR_NOT_CONNECTED
            | ucs_status_t::UCS_ERR_CANCELED
            | ucs_status_t::UCS_ERR_IO_ERROR => Cause::Closed,
            _ => Cause::Ucx { status: status.name().unwrap_or("an unknown error") },
        });
    }
}

/// A worker for one endpoint, with what its callbacks reach.
struct Prepared<'a> {
    /// Ends before the inbox, which its callbacks use.
    worker: Worker<'a>,
    inbox: Box<Inbox>,
    messages: Receiver<Vec<u8>>,
}

impl<'a> Prepared<'a> {
    fn new(context: &'a Context) -> Result<Self> {
        let ucp = context.ucp;
        let (sender, messages) = unbounded();
        let inbox = Box::new(Inbox { messages: sender, broken: Cell::new(None) });
        let made = Self { worker: Worker::new(context)?, inbox, messages };
        let handler = ucp_am_handler_param {
            field_mask: bits(
                ucp,
                Handler::UCP_AM_HANDLER_PARAM_FIELD_ID
                    | Handler::UCP_AM_HANDLER_PARAM_FIELD_CB
                    | Handler::UCP_AM_HANDLER_PARAM_FIELD_ARG,
            )?,
            id: MESSAGE,
            cb: Some(on_message),
            arg: made.argument(),
            ..Default::default()
        };
        // SAFETY: the inbox lives on the heap until the worker has ended.
        let set = unsafe { ucp.ucp_worker_set_am_recv_handler(made.worker.worker, &handler) };
        check(ucp, "ucp_worker_set_am_recv_handler", set)?;
        Ok(made)
    }

    fn argument(&self) -> *mut c_void {
        (&raw const *self.inbox).cast_mut().cast()
    }

    /// Makes the endpoint of these parameters.
    fn endpoint(self, params: &mut ucp_ep_params, fields: Field) -> Result<(Endpoint<'a>, Receiver<Vec<u8>>)> {
        let ucp = self.worker.context.ucp;
        let fields = fields | Field::UCP_EP_PARAM_FIELD_ERR_HANDLER | Field::UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        params.field_mask = bits(ucp, fields)?;
        params.err_mode = ucp_err_handling_mode_t::UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler = ucp_err_handler_t { cb: Some(on_error), arg: self.argument() };
        let mut endpoint = ptr::null_mut();
        // SAFETY: the inbox lives on the heap until the worker has ended; the parameters say which of their fields are set,
        // and the address that they may name is alive.
        let made = unsafe { ucp.ucp_ep_create(self.worker.worker, params, &mut endpoint) };
        check(ucp, "ucp_ep_create", made)?;
        let Self { worker, inbox, messages } = self;
        Ok((Endpoint { endpoint, sending: Vec::new(), sent: Vec::new(), worker, inbox, unsent: Vec::new() }, messages))
    }
}

/// An endpoint with a worker of its own.
pub(super) struct Endpoint<'a> {
    endpoint: ucp_ep_h,
    /// The memory of messages that UCX sends, each with its request.
    sending: Vec<(ucs_status_ptr_t, Vec<u8>)>,
    /// The memory of messages that were sent since the last question.
    sent: Vec<Vec<u8>>,
    /// Ends before the inbox, which its callbacks use, and before the messages that it may still read.
    worker: Worker<'a>,
    inbox: Box<Inbox>,
    unsent: Vec<Vec<u8>>,
}

impl<'a> Endpoint<'a> {
    /// Begins to connect. An error of the connection breaks the endpoint.
    pub fn connect(context: &'a Context, address: SocketAddr) -> Result<(Self, Receiver<Vec<u8>>)> {
        let address = SocketAddrAny::from(address);
        let mut params = ucp_ep_params {
            flags: ucp_ep_params_flags_field::UCP_EP_PARAMS_FLAGS_CLIENT_SERVER.0,
            sockaddr: as_ucs(&address),
            ..Default::default()
        };
        let fields = Field::UCP_EP_PARAM_FIELD_FLAGS | Field::UCP_EP_PARAM_FIELD_SOCK_ADDR;
        Prepared::new(context)?.endpoint(&mut params, fields)
    }

    /// The endpoint of a peer that has connected, and its address.
    pub fn accept(
        context: &'a Context,
        listener: &Listener<'_>,
        request: ucp_conn_request_h,
    ) -> Result<(Self, Receiver<Vec<u8>>, SocketAddr)> {
        let made = client_of(context.ucp, request).and_then(|address| Ok((address, Prepared::new(context)?)));
        let (address, prepared) = match made {
            Ok(made) => made,
            Err(error) => {
                listener.reject(request);
                return Err(error);
            }
        };
        // From here on, the request is UCX's, also in an error.
        let mut params = ucp_ep_params { conn_request: request, ..Default::default() };
        let (endpoint, messages) = prepared.endpoint(&mut params, Field::UCP_EP_PARAM_FIELD_CONN_REQUEST)?;
        Ok((endpoint, messages, address))
    }

    /// Whether UCX may take more from the peer. One call may give hundreds of short messages.
    pub fn has_room(&self) -> bool {
        // What this side sends progresses by the same calls.
        let most = if self.sending.is_empty() { ENOUGH } else { 8 * ENOUGH };
        self.inbox.messages.len() < most
    }

    /// What has ended the connection.
    pub fn broken(&self) -> Option<Cause> {
        self.inbox.broken.get()
    }

    pub fn worker(&self) -> &Worker<'a> {
        &self.worker
    }

    pub fn send(&mut self, Message { memory, size }: Message) {
        let flags = Op::UCP_OP_ATTR_FIELD_FLAGS | Op::UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        let params = ucp_request_param_t {
            op_attr_mask: flags.0,
            // In the order of the calls: by the other way, UCX would ask the receiver first.
            flags: ucp_send_am_flags::UCP_AM_SEND_FLAG_EAGER.0,
            memory_type: ucs_memory_type::UCS_MEMORY_TYPE_HOST,
            ..Default::default()
        };
        // SAFETY: the message stays where it is until its request is done.
        let request = unsafe {
            let ucp = self.worker.context.ucp;
            ucp.ucp_am_send_nbx(self.endpoint, MESSAGE, ptr::null(), 0, memory.as_ptr().cast(), size, &params)
        };
        match request.map(|request| (request, UCS_PTR_STATUS(request))) {
            Ok((_, ucs_status_t::UCS_OK)) => self.sent.push(memory),
            Ok((request, ucs_status_t::UCS_INPROGRESS)) => self.sending.push((request, memory)),
            Ok((_, status)) => self.inbox.fail(status),
            Err(_) => self.inbox.fail(ucs_status_t::UCS_ERR_UNSUPPORTED),
        }
    }

    /// The memory of messages that were sent since the last call.
    pub fn take_sent(&mut self) -> Vec<Vec<u8>> {
        let ucp = self.worker.context.ucp;
        let (inbox, sent) = (&self.inbox, &mut self.sent);
        let is_done = |(request, _): &mut (ucs_status_ptr_t, Vec<u8>)| {
            // SAFETY: the request is UCX's, and freed once, here.
            let status = unsafe { ucp.ucp_request_check_status(*request) }.unwrap_or(ucs_status_t::UCS_ERR_IO_ERROR);
            if status == ucs_status_t::UCS_INPROGRESS {
                return false;
            }
            if status != ucs_status_t::UCS_OK {
                inbox.fail(status);
            }
            // SAFETY: as above.
            let _ = unsafe { ucp.ucp_request_free(*request) };
            true
        };
        sent.extend(self.sending.extract_if(.., is_done).map(|(_, memory)| memory));
        core::mem::take(&mut self.sent)
    }
}

impl Drop for Endpoint<'_> {
    fn drop(&mut self) {
        let ucp = self.worker.context.ucp;
        let params = ucp_request_param_t {
            op_attr_mask: Op::UCP_OP_ATTR_FIELD_FLAGS.0,
            flags: ucp_ep_close_flags_t::UCP_EP_CLOSE_FLAG_FORCE.0,
            ..Default::default()
        };
        // SAFETY: the endpoint is closed once. The messages live until the worker has ended, up to which UCX may read them.
        unsafe {
            let Ok(request) = ucp.ucp_ep_close_nbx(self.endpoint, &params) else { return };
            if UCS_PTR_STATUS(request) == ucs_status_t::UCS_INPROGRESS {
                while ucp.ucp_request_check_status(request) == Ok(ucs_status_t::UCS_INPROGRESS) {
                    self.worker.progress();
                }
                let _ = ucp.ucp_request_free(request);
            }
            for (request, message) in self.sending.drain(..) {
                let _ = ucp.ucp_request_free(request);
                self.unsent.push(message);
            }
        }
    }
}

/// The address of a peer that asks for a connection.
fn client_of(ucp: &Ucp, request: ucp_conn_request_h) -> Result<SocketAddr> {
    let field_mask = bits(ucp, Request::UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR)?;
    let mut about = ucp_conn_request_attr { field_mask, ..Default::default() };
    // SAFETY: the request is UCX's and not used yet.
    let asked = unsafe { ucp.ucp_conn_request_query(request, &mut about) };
    check(ucp, "ucp_conn_request_query", asked)?;
    // SAFETY: UCX has filled the address.
    unsafe { address_of("ucp_conn_request_query", (&raw const about.client_address).cast()) }
}

/// A listener with a worker of its own.
pub(super) struct Listener<'a> {
    listener: ucp_listener_h,
    /// Ends before the requests, which its callback uses.
    worker: Worker<'a>,
    requests: Box<RefCell<Vec<ucp_conn_request_h>>>,
}

impl<'a> Listener<'a> {
    /// Listens at an address. Returns it with its port.
    pub fn new(context: &'a Context, address: SocketAddr) -> Result<(Self, SocketAddr)> {
        let (ucp, named) = (context.ucp, SocketAddrAny::from(address));
        let requests = Box::<RefCell<Vec<_>>>::default();
        let worker = Worker::new(context)?;
        let params = ucp_listener_params {
            field_mask: bits(
                ucp,
                Listen::UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | Listen::UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
            )?,
            sockaddr: as_ucs(&named),
            conn_handler: ucp_listener_conn_handler_t {
                cb: Some(on_connection),
                arg: (&raw const *requests).cast_mut().cast(),
            },
            ..Default::default()
        };
        let mut listener = ptr::null_mut();
        let mut about = ucp_listener_attr {
            field_mask: bits(ucp, ucp_listener_attr_field::UCP_LISTENER_ATTR_FIELD_SOCKADDR)?,
            ..Default::default()
        };
        // SAFETY: the requests live on the heap until the worker has ended, and the address until the call returns.
        unsafe {
            check(ucp, "ucp_listener_create", ucp.ucp_listener_create(worker.worker, &params, &mut listener))?;
            let made = Self { listener, worker, requests };
            check(ucp, "ucp_listener_query", ucp.ucp_listener_query(made.listener, &mut about))?;
            let address = address_of("ucp_listener_query", (&raw const about.sockaddr).cast())?;
            Ok((made, address))
        }
    }

    /// The first peer that asks for a connection.
    pub fn take_request(&self) -> Option<ucp_conn_request_h> {
        let mut requests = self.requests.borrow_mut();
        (!requests.is_empty()).then(|| requests.remove(0))
    }

    fn reject(&self, request: ucp_conn_request_h) {
        // SAFETY: the request is this listener's, and not used.
        let _ = unsafe { self.worker.context.ucp.ucp_listener_reject(self.listener, request) };
    }

    pub fn worker(&self) -> &Worker<'a> {
        &self.worker
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        for request in self.requests.take() {
            self.reject(request);
        }
        // SAFETY: the listener ends once.
        let _ = unsafe { self.worker.context.ucp.ucp_listener_destroy(self.listener) };
    }
}

unsafe extern "C" fn on_message(
    argument: *mut c_void,
    _header: *const c_void,
    _header_size: usize,
    data: *mut c_void,
    size: usize,
    about: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: the argument is the inbox of the endpoint's worker, on whose thread UCX calls; `about` is UCX's.
    let (inbox, about) = unsafe { (&*argument.cast_const().cast::<Inbox>(), &*about) };
    if about.recv_attr & u64::from(Received::UCP_AM_RECV_ATTR_FLAG_RNDV.0) != 0 || size > super::super::MAX_SEALED {
        inbox.break_by(Cause::Protocol("a message is too long"));
        return ucs_status_t::UCS_OK;
    }
    let message = match size {
        0 => Vec::new(),
        // SAFETY: UCX gives `size` bytes until this returns.
        _ => unsafe { core::slice::from_raw_parts(data.cast_const().cast::<u8>(), size) }.to_vec(),
    };
    if inbox.messages.try_send(message).is_err() {
        inbox.break_by(Cause::Closed);
    }
    ucs_status_t::UCS_OK
}

unsafe extern "C" fn on_error(argument: *mut c_void, _endpoint: ucp_ep_h, status: ucs_status_t) {
    // SAFETY: as above.
    unsafe { &*argument.cast_const().cast::<Inbox>() }.fail(status);
}

unsafe extern "C" fn on_connection(request: ucp_conn_request_h, argument: *mut c_void) {
    // SAFETY: the argument is the list of the listener's worker, on whose thread UCX calls.
    unsafe { &*argument.cast_const().cast::<RefCell<Vec<ucp_conn_request_h>>>() }.borrow_mut().push(request);
}

/// A mask whose bits the library knows.
fn bits<M: Mask>(ucp: &Ucp, mask: M) -> Result<u64> {
    ucp.require(mask).map(|mask| u64::from(mask.value())).map_err(|missing| failed("a mask", missing))
}

fn failed(call: &'static str, why: impl ToString) -> Error {
    Error::Ucx { call, status: why.to_string() }
}

fn check(ucp: &Ucp, call: &'static str, status: Result<ucs_status_t, cuda_mem::cuda_sys::MissingSymbol>) -> Result<()> {
    match status.map_err(|missing| failed(call, missing))? {
        ucs_status_t::UCS_OK => Ok(()),
        status => {
            // SAFETY: UCX returns a string that it keeps.
            let text = unsafe {
                ucp.ucs_status_string(status).ok().filter(|text| !text.is_null()).map(|text| CStr::from_ptr(text))
            };
            Err(failed(call, text.map_or_else(|| format!("{status:?}"), |text| text.to_string_lossy().into_owned())))
        }
    }
}

/// An address for a call of UCX that ends before `address` does.
fn as_ucs(address: &SocketAddrAny) -> ucs_sock_addr_t {
    ucs_sock_addr_t { addr: address.as_ptr().cast(), addrlen: address.addr_len() }
}

/// The address that UCX has filled in.
///
/// # Safety
///
/// It points to an initialised `sockaddr_storage`.
unsafe fn address_of(call: &'static str, storage: *const SocketAddrStorage) -> Result<SocketAddr> {
    // SAFETY: the caller's contract: the address is one of a family, and lies in the whole storage.
    let address = unsafe { SocketAddrAny::read(storage, size_of::<SocketAddrStorage>() as u32) };
    address.try_into().map_err(|_| failed(call, "the address is not one of IP"))
}
