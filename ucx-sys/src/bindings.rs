// Made from wrapper.h by build.rs (scripts/bindings); do not edit.

use libc::{sockaddr, sockaddr_storage, socklen_t};
pub const UCP_ENTITY_NAME_MAX: u32 = 32;
impl ucs_status_t {
    /// The code's name, if this crate knows the code.
    pub const fn name(self) -> Option<&'static str> {
        Some(
            match self {
                Self::UCS_OK => "UCS_OK",
                Self::UCS_INPROGRESS => "UCS_INPROGRESS",
                Self::UCS_ERR_NO_MESSAGE => "UCS_ERR_NO_MESSAGE",
                Self::UCS_ERR_NO_RESOURCE => "UCS_ERR_NO_RESOURCE",
                Self::UCS_ERR_IO_ERROR => "UCS_ERR_IO_ERROR",
                Self::UCS_ERR_NO_MEMORY => "UCS_ERR_NO_MEMORY",
                Self::UCS_ERR_INVALID_PARAM => "UCS_ERR_INVALID_PARAM",
                Self::UCS_ERR_UNREACHABLE => "UCS_ERR_UNREACHABLE",
                Self::UCS_ERR_INVALID_ADDR => "UCS_ERR_INVALID_ADDR",
                Self::UCS_ERR_NOT_IMPLEMENTED => "UCS_ERR_NOT_IMPLEMENTED",
                Self::UCS_ERR_MESSAGE_TRUNCATED => "UCS_ERR_MESSAGE_TRUNCATED",
                Self::UCS_ERR_NO_PROGRESS => "UCS_ERR_NO_PROGRESS",
                Self::UCS_ERR_BUFFER_TOO_SMALL => "UCS_ERR_BUFFER_TOO_SMALL",
                Self::UCS_ERR_NO_ELEM => "UCS_ERR_NO_ELEM",
                Self::UCS_ERR_SOME_CONNECTS_FAILED => "UCS_ERR_SOME_CONNECTS_FAILED",
                Self::UCS_ERR_NO_DEVICE => "UCS_ERR_NO_DEVICE",
                Self::UCS_ERR_BUSY => "UCS_ERR_BUSY",
                Self::UCS_ERR_CANCELED => "UCS_ERR_CANCELED",
                Self::UCS_ERR_SHMEM_SEGMENT => "UCS_ERR_SHMEM_SEGMENT",
                Self::UCS_ERR_ALREADY_EXISTS => "UCS_ERR_ALREADY_EXISTS",
                Self::UCS_ERR_OUT_OF_RANGE => "UCS_ERR_OUT_OF_RANGE",
                Self::UCS_ERR_TIMED_OUT => "UCS_ERR_TIMED_OUT",
                Self::UCS_ERR_EXCEEDS_LIMIT => "UCS_ERR_EXCEEDS_LIMIT",
                Self::UCS_ERR_UNSUPPORTED => "UCS_ERR_UNSUPPORTED",
                Self::UCS_ERR_REJECTED => "UCS_ERR_REJECTED",
                Self::UCS_ERR_NOT_CONNECTED => "UCS_ERR_NOT_CONNECTED",
                Self::UCS_ERR_CONNECTION_RESET => "UCS_ERR_CONNECTION_RESET",
                Self::UCS_ERR_FIRST_LINK_FAILURE => "UCS_ERR_FIRST_LINK_FAILURE",
                Self::UCS_ERR_LAST_LINK_FAILURE => "UCS_ERR_LAST_LINK_FAILURE",
                Self::UCS_ERR_FIRST_ENDPOINT_FAILURE => "UCS_ERR_FIRST_ENDPOINT_FAILURE",
                Self::UCS_ERR_ENDPOINT_TIMEOUT => "UCS_ERR_ENDPOINT_TIMEOUT",
                Self::UCS_ERR_LAST_ENDPOINT_FAILURE => "UCS_ERR_LAST_ENDPOINT_FAILURE",
                Self::UCS_ERR_LAST => "UCS_ERR_LAST",
                _ => return None,
            },
        )
    }
}
impl ucs_status_t {
    pub const UCS_OK: ucs_status_t = ucs_status_t(0);
    pub const UCS_INPROGRESS: ucs_status_t = ucs_status_t(1);
    pub const UCS_ERR_NO_MESSAGE: ucs_status_t = ucs_status_t(-1);
    pub const UCS_ERR_NO_RESOURCE: ucs_status_t = ucs_status_t(-2);
    pub const UCS_ERR_IO_ERROR: ucs_status_t = ucs_status_t(-3);
    pub const UCS_ERR_NO_MEMORY: ucs_status_t = ucs_status_t(-4);
    pub const UCS_ERR_INVALID_PARAM: ucs_status_t = ucs_status_t(-5);
    pub const UCS_ERR_UNREACHABLE: ucs_status_t = ucs_status_t(-6);
    pub const UCS_ERR_INVALID_ADDR: ucs_status_t = ucs_status_t(-7);
    pub const UCS_ERR_NOT_IMPLEMENTED: ucs_status_t = ucs_status_t(-8);
    pub const UCS_ERR_MESSAGE_TRUNCATED: ucs_status_t = ucs_status_t(-9);
    pub const UCS_ERR_NO_PROGRESS: ucs_status_t = ucs_status_t(-10);
    pub const UCS_ERR_BUFFER_TOO_SMALL: ucs_status_t = ucs_status_t(-11);
    pub const UCS_ERR_NO_ELEM: ucs_status_t = ucs_status_t(-12);
    pub const UCS_ERR_SOME_CONNECTS_FAILED: ucs_status_t = ucs_status_t(-13);
    pub const UCS_ERR_NO_DEVICE: ucs_status_t = ucs_status_t(-14);
    pub const UCS_ERR_BUSY: ucs_status_t = ucs_status_t(-15);
    pub const UCS_ERR_CANCELED: ucs_status_t = ucs_status_t(-16);
    pub const UCS_ERR_SHMEM_SEGMENT: ucs_status_t = ucs_status_t(-17);
    pub const UCS_ERR_ALREADY_EXISTS: ucs_status_t = ucs_status_t(-18);
    pub const UCS_ERR_OUT_OF_RANGE: ucs_status_t = ucs_status_t(-19);
    pub const UCS_ERR_TIMED_OUT: ucs_status_t = ucs_status_t(-20);
    pub const UCS_ERR_EXCEEDS_LIMIT: ucs_status_t = ucs_status_t(-21);
    pub const UCS_ERR_UNSUPPORTED: ucs_status_t = ucs_status_t(-22);
    pub const UCS_ERR_REJECTED: ucs_status_t = ucs_status_t(-23);
    pub const UCS_ERR_NOT_CONNECTED: ucs_status_t = ucs_status_t(-24);
    pub const UCS_ERR_CONNECTION_RESET: ucs_status_t = ucs_status_t(-25);
    pub const UCS_ERR_FIRST_LINK_FAILURE: ucs_status_t = ucs_status_t(-40);
    pub const UCS_ERR_LAST_LINK_FAILURE: ucs_status_t = ucs_status_t(-59);
    pub const UCS_ERR_FIRST_ENDPOINT_FAILURE: ucs_status_t = ucs_status_t(-60);
    pub const UCS_ERR_ENDPOINT_TIMEOUT: ucs_status_t = ucs_status_t(-80);
    pub const UCS_ERR_LAST_ENDPOINT_FAILURE: ucs_status_t = ucs_status_t(-89);
    pub const UCS_ERR_LAST: ucs_status_t = ucs_status_t(-100);
}
#[repr(transparent)]
/// The result of a call, or the state of a request. Codes that are not listed here occur too: those of failed links and endpoints, between the first and the last of each.
#[must_use]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucs_status_t(pub ::core::ffi::c_schar);
/// What starts an operation returns: null if it is done, a status as an address if it failed, else a request.
pub type ucs_status_ptr_t = *mut ::core::ffi::c_void;
/// What a piece of memory contains. 0 is bytes; a larger element's size stands above the lowest three bits.
pub type ucp_datatype_t = u64;
impl ucs_memory_type {
    pub const UCS_MEMORY_TYPE_HOST: ucs_memory_type = ucs_memory_type(0);
    pub const UCS_MEMORY_TYPE_CUDA: ucs_memory_type = ucs_memory_type(1);
    pub const UCS_MEMORY_TYPE_CUDA_MANAGED: ucs_memory_type = ucs_memory_type(2);
}
#[repr(transparent)]
/// The kind of a piece of memory. The numbers of further kinds differ between releases, so leave the field out for memory of unknown kind.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucs_memory_type(pub ::core::ffi::c_uint);
/// The kind of a piece of memory. The numbers of further kinds differ between releases, so leave the field out for memory of unknown kind.
pub use self::ucs_memory_type as ucs_memory_type_t;
impl ucs_thread_mode_t {
    /// The thread that made the object.
    pub const UCS_THREAD_MODE_SINGLE: ucs_thread_mode_t = ucs_thread_mode_t(0);
    /// Any thread, one at a time.
    pub const UCS_THREAD_MODE_SERIALIZED: ucs_thread_mode_t = ucs_thread_mode_t(1);
    /// All threads at once.
    pub const UCS_THREAD_MODE_MULTI: ucs_thread_mode_t = ucs_thread_mode_t(2);
}
#[repr(transparent)]
/// Which threads may call.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucs_thread_mode_t(pub ::core::ffi::c_uint);
impl ucp_err_handling_mode_t {
    /// It tells nobody, and requests may stay in progress for ever.
    pub const UCP_ERR_HANDLING_MODE_NONE: ucp_err_handling_mode_t = ucp_err_handling_mode_t(
        0,
    );
    /// It fails the requests, and calls the endpoint's error handler.
    pub const UCP_ERR_HANDLING_MODE_PEER: ucp_err_handling_mode_t = ucp_err_handling_mode_t(
        1,
    );
}
#[repr(transparent)]
/// How an endpoint treats a peer that is gone.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_err_handling_mode_t(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug)]
pub struct ucp_context {
    _unused: [u8; 0],
}
/// An instance of UCP with its memory registrations.
pub type ucp_context_h = *mut ucp_context;
#[repr(C)]
#[derive(Debug)]
pub struct ucp_config {
    _unused: [u8; 0],
}
/// Settings, read from the environment and changed by the program.
pub type ucp_config_t = ucp_config;
#[repr(C)]
#[derive(Debug)]
pub struct ucp_worker {
    _unused: [u8; 0],
}
/// What makes progress: the network resources of one thread or of several.
pub type ucp_worker_h = *mut ucp_worker;
#[repr(C)]
#[derive(Debug)]
pub struct ucp_listener {
    _unused: [u8; 0],
}
/// A socket on which peers connect.
pub type ucp_listener_h = *mut ucp_listener;
#[repr(C)]
#[derive(Debug)]
pub struct ucp_conn_request {
    _unused: [u8; 0],
}
/// A peer's wish to connect, to be taken or rejected.
pub type ucp_conn_request_h = *mut ucp_conn_request;
#[repr(C)]
#[derive(Debug)]
pub struct ucp_ep {
    _unused: [u8; 0],
}
/// A connection to a peer.
pub type ucp_ep_h = *mut ucp_ep;
#[repr(C)]
#[derive(Debug)]
pub struct ucp_mem {
    _unused: [u8; 0],
}
/// Registered memory.
pub type ucp_mem_h = *mut ucp_mem;
#[repr(C)]
#[derive(Debug)]
pub struct ucp_address {
    _unused: [u8; 0],
}
/// A worker's address, as bytes to be sent to a peer.
pub type ucp_address_t = ucp_address;
#[repr(C)]
#[derive(Debug)]
pub struct ucp_tag_recv_info {
    _unused: [u8; 0],
}
/// What a tag receive got; here only for the request's parameters.
pub type ucp_tag_recv_info_t = ucp_tag_recv_info;
/// What an active message's handler learns about the message.
pub type ucp_am_recv_param_t = ucp_am_recv_param;
/// Prepares a request's own bytes.
pub type ucp_request_init_callback_t = ::core::option::Option<
    unsafe extern "C" fn(request: *mut ::core::ffi::c_void),
>;
/// Ends a request's own bytes.
pub type ucp_request_cleanup_callback_t = ::core::option::Option<
    unsafe extern "C" fn(request: *mut ::core::ffi::c_void),
>;
/// A send is done.
pub type ucp_send_nbx_callback_t = ::core::option::Option<
    unsafe extern "C" fn(
        request: *mut ::core::ffi::c_void,
        status: ucs_status_t,
        user_data: *mut ::core::ffi::c_void,
    ),
>;
/// A tag receive is done.
pub type ucp_tag_recv_nbx_callback_t = ::core::option::Option<
    unsafe extern "C" fn(
        request: *mut ::core::ffi::c_void,
        status: ucs_status_t,
        tag_info: *const ucp_tag_recv_info_t,
        user_data: *mut ::core::ffi::c_void,
    ),
>;
/// A receive from a stream is done.
pub type ucp_stream_recv_nbx_callback_t = ::core::option::Option<
    unsafe extern "C" fn(
        request: *mut ::core::ffi::c_void,
        status: ucs_status_t,
        length: usize,
        user_data: *mut ::core::ffi::c_void,
    ),
>;
/// A receive of an active message's data is done.
pub type ucp_am_recv_data_nbx_callback_t = ::core::option::Option<
    unsafe extern "C" fn(
        request: *mut ::core::ffi::c_void,
        status: ucs_status_t,
        length: usize,
        user_data: *mut ::core::ffi::c_void,
    ),
>;
/// An active message arrived. UCS_INPROGRESS keeps its data for later, if the flags allow that.
pub type ucp_am_recv_callback_t = ::core::option::Option<
    unsafe extern "C" fn(
        arg: *mut ::core::ffi::c_void,
        header: *const ::core::ffi::c_void,
        header_length: usize,
        data: *mut ::core::ffi::c_void,
        length: usize,
        param: *const ucp_am_recv_param_t,
    ) -> ucs_status_t,
>;
/// An endpoint failed. It must still be closed.
pub type ucp_err_handler_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        arg: *mut ::core::ffi::c_void,
        ep: ucp_ep_h,
        status: ucs_status_t,
    ),
>;
/// A listener made an endpoint; replaced by ucp_listener_conn_callback_t.
pub type ucp_listener_accept_callback_t = ::core::option::Option<
    unsafe extern "C" fn(ep: ucp_ep_h, arg: *mut ::core::ffi::c_void),
>;
/// A peer wants to connect.
pub type ucp_listener_conn_callback_t = ::core::option::Option<
    unsafe extern "C" fn(conn_request: ucp_conn_request_h, arg: *mut ::core::ffi::c_void),
>;
impl Mask for ucp_lib_attr_field {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL",
            Self::UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL.0,
            1110,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_lib_attr_field {
    /// `max_thread_level`. Since UCX 1.11.
    pub const UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL: ucp_lib_attr_field = ucp_lib_attr_field(
        1,
    );
}
impl ::core::ops::BitOr<ucp_lib_attr_field> for ucp_lib_attr_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_lib_attr_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_lib_attr_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_lib_attr_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_lib_attr_field> for ucp_lib_attr_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_lib_attr_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_lib_attr_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_lib_attr_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_lib_attr_t are asked for.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_lib_attr_field(pub ::core::ffi::c_uint);
/// How the library was built.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct ucp_lib_attr {
    /// Bits of ucp_lib_attr_field.
    pub field_mask: u64,
    /// The most threads that a context or a worker may serve.
    pub max_thread_level: ucs_thread_mode_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ucp_lib_attr"][::core::mem::size_of::<ucp_lib_attr>() - 16usize];
    ["Alignment of ucp_lib_attr"][::core::mem::align_of::<ucp_lib_attr>() - 8usize];
    [
        "Offset of field: ucp_lib_attr::field_mask",
    ][::core::mem::offset_of!(ucp_lib_attr, field_mask) - 0usize];
    [
        "Offset of field: ucp_lib_attr::max_thread_level",
    ][::core::mem::offset_of!(ucp_lib_attr, max_thread_level) - 8usize];
};
impl Default for ucp_lib_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// How the library was built.
pub type ucp_lib_attr_t = ucp_lib_attr;
impl Mask for ucp_params_field {
    const BITS: &'static [Bit] = &[
        Bit::new("UCP_PARAM_FIELD_FEATURES", Self::UCP_PARAM_FIELD_FEATURES.0, 1020),
        Bit::new(
            "UCP_PARAM_FIELD_REQUEST_SIZE",
            Self::UCP_PARAM_FIELD_REQUEST_SIZE.0,
            1020,
        ),
        Bit::new(
            "UCP_PARAM_FIELD_REQUEST_INIT",
            Self::UCP_PARAM_FIELD_REQUEST_INIT.0,
            1020,
        ),
        Bit::new(
            "UCP_PARAM_FIELD_REQUEST_CLEANUP",
            Self::UCP_PARAM_FIELD_REQUEST_CLEANUP.0,
            1020,
        ),
        Bit::new(
            "UCP_PARAM_FIELD_TAG_SENDER_MASK",
            Self::UCP_PARAM_FIELD_TAG_SENDER_MASK.0,
            1020,
        ),
        Bit::new(
            "UCP_PARAM_FIELD_MT_WORKERS_SHARED",
            Self::UCP_PARAM_FIELD_MT_WORKERS_SHARED.0,
            1020,
        ),
        Bit::new(
            "UCP_PARAM_FIELD_ESTIMATED_NUM_EPS",
            Self::UCP_PARAM_FIELD_ESTIMATED_NUM_EPS.0,
            1020,
        ),
        Bit::new(
            "UCP_PARAM_FIELD_ESTIMATED_NUM_PPN",
            Self::UCP_PARAM_FIELD_ESTIMATED_NUM_PPN.0,
            1070,
        ),
        Bit::new("UCP_PARAM_FIELD_NAME", Self::UCP_PARAM_FIELD_NAME.0, 1110),
        Bit::new(
            "UCP_PARAM_FIELD_NODE_LOCAL_ID",
            Self::UCP_PARAM_FIELD_NODE_LOCAL_ID.0,
            1200,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_params_field {
    /// `features`. Since UCX 1.2.
    pub const UCP_PARAM_FIELD_FEATURES: ucp_params_field = ucp_params_field(1);
    /// `request_size`. Since UCX 1.2.
    pub const UCP_PARAM_FIELD_REQUEST_SIZE: ucp_params_field = ucp_params_field(2);
    /// `request_init`. Since UCX 1.2.
    pub const UCP_PARAM_FIELD_REQUEST_INIT: ucp_params_field = ucp_params_field(4);
    /// `request_cleanup`. Since UCX 1.2.
    pub const UCP_PARAM_FIELD_REQUEST_CLEANUP: ucp_params_field = ucp_params_field(8);
    /// `tag_sender_mask`. Since UCX 1.2.
    pub const UCP_PARAM_FIELD_TAG_SENDER_MASK: ucp_params_field = ucp_params_field(16);
    /// `mt_workers_shared`. Since UCX 1.2.
    pub const UCP_PARAM_FIELD_MT_WORKERS_SHARED: ucp_params_field = ucp_params_field(32);
    /// `estimated_num_eps`. Since UCX 1.2.
    pub const UCP_PARAM_FIELD_ESTIMATED_NUM_EPS: ucp_params_field = ucp_params_field(64);
    /// `estimated_num_ppn`. Since UCX 1.7.
    pub const UCP_PARAM_FIELD_ESTIMATED_NUM_PPN: ucp_params_field = ucp_params_field(
        128,
    );
    /// `name`. Since UCX 1.11.
    pub const UCP_PARAM_FIELD_NAME: ucp_params_field = ucp_params_field(256);
    /// `node_local_id`. Since UCX 1.20.
    pub const UCP_PARAM_FIELD_NODE_LOCAL_ID: ucp_params_field = ucp_params_field(512);
}
impl ::core::ops::BitOr<ucp_params_field> for ucp_params_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_params_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_params_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_params_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_params_field> for ucp_params_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_params_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_params_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_params_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_params_t are set.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_params_field(pub ::core::ffi::c_uint);
impl Mask for ucp_feature {
    const BITS: &'static [Bit] = &[
        Bit::new("UCP_FEATURE_RMA", Self::UCP_FEATURE_RMA.0, 1020),
        Bit::new("UCP_FEATURE_WAKEUP", Self::UCP_FEATURE_WAKEUP.0, 1020),
        Bit::new("UCP_FEATURE_AM", Self::UCP_FEATURE_AM.0, 1070),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_feature {
    /// Access to a peer's memory. Since UCX 1.2.
    pub const UCP_FEATURE_RMA: ucp_feature = ucp_feature(2);
    /// Waits on a file descriptor. Since UCX 1.2.
    pub const UCP_FEATURE_WAKEUP: ucp_feature = ucp_feature(16);
    /// Active messages. Since UCX 1.7.
    pub const UCP_FEATURE_AM: ucp_feature = ucp_feature(64);
}
impl ::core::ops::BitOr<ucp_feature> for ucp_feature {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_feature(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_feature {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_feature) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_feature> for ucp_feature {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_feature(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_feature {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_feature) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// What a context is used for.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_feature(pub ::core::ffi::c_uint);
/// Arguments of ucp_init_version.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ucp_params {
    /// Bits of ucp_params_field.
    pub field_mask: u64,
    /// Bits of ucp_feature.
    pub features: u64,
    /// The size of the program's own part of each request.
    pub request_size: usize,
    /// Called for a new request.
    pub request_init: ucp_request_init_callback_t,
    /// Called before a request's memory ends.
    pub request_cleanup: ucp_request_cleanup_callback_t,
    /// The bits of a tag that name the sender.
    pub tag_sender_mask: u64,
    /// Not 0: workers of several threads share the context.
    pub mt_workers_shared: ::core::ffi::c_int,
    /// How many endpoints there will be, about.
    pub estimated_num_eps: usize,
    /// How many processes there are on this host, about.
    pub estimated_num_ppn: usize,
    /// A name for logs.
    pub name: *const ::core::ffi::c_char,
    /// The process's number among those of this host. Since UCX 1.20.
    pub node_local_id: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ucp_params"][::core::mem::size_of::<ucp_params>() - 88usize];
    ["Alignment of ucp_params"][::core::mem::align_of::<ucp_params>() - 8usize];
    [
        "Offset of field: ucp_params::field_mask",
    ][::core::mem::offset_of!(ucp_params, field_mask) - 0usize];
    [
        "Offset of field: ucp_params::features",
    ][::core::mem::offset_of!(ucp_params, features) - 8usize];
    [
        "Offset of field: ucp_params::request_size",
    ][::core::mem::offset_of!(ucp_params, request_size) - 16usize];
    [
        "Offset of field: ucp_params::request_init",
    ][::core::mem::offset_of!(ucp_params, request_init) - 24usize];
    [
        "Offset of field: ucp_params::request_cleanup",
    ][::core::mem::offset_of!(ucp_params, request_cleanup) - 32usize];
    [
        "Offset of field: ucp_params::tag_sender_mask",
    ][::core::mem::offset_of!(ucp_params, tag_sender_mask) - 40usize];
    [
        "Offset of field: ucp_params::mt_workers_shared",
    ][::core::mem::offset_of!(ucp_params, mt_workers_shared) - 48usize];
    [
        "Offset of field: ucp_params::estimated_num_eps",
    ][::core::mem::offset_of!(ucp_params, estimated_num_eps) - 56usize];
    [
        "Offset of field: ucp_params::estimated_num_ppn",
    ][::core::mem::offset_of!(ucp_params, estimated_num_ppn) - 64usize];
    [
        "Offset of field: ucp_params::name",
    ][::core::mem::offset_of!(ucp_params, name) - 72usize];
    [
        "Offset of field: ucp_params::node_local_id",
    ][::core::mem::offset_of!(ucp_params, node_local_id) - 80usize];
};
impl Default for ucp_params {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// Arguments of ucp_init_version.
pub type ucp_params_t = ucp_params;
impl Mask for ucp_context_attr_field {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_ATTR_FIELD_REQUEST_SIZE",
            Self::UCP_ATTR_FIELD_REQUEST_SIZE.0,
            1020,
        ),
        Bit::new("UCP_ATTR_FIELD_THREAD_MODE", Self::UCP_ATTR_FIELD_THREAD_MODE.0, 1020),
        Bit::new(
            "UCP_ATTR_FIELD_MEMORY_TYPES",
            Self::UCP_ATTR_FIELD_MEMORY_TYPES.0,
            1100,
        ),
        Bit::new("UCP_ATTR_FIELD_NAME", Self::UCP_ATTR_FIELD_NAME.0, 1110),
        Bit::new(
            "UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE",
            Self::UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE.0,
            1200,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_context_attr_field {
    /// `request_size`. Since UCX 1.2.
    pub const UCP_ATTR_FIELD_REQUEST_SIZE: ucp_context_attr_field = ucp_context_attr_field(
        1,
    );
    /// `thread_mode`. Since UCX 1.2.
    pub const UCP_ATTR_FIELD_THREAD_MODE: ucp_context_attr_field = ucp_context_attr_field(
        2,
    );
    /// `memory_types`. Since UCX 1.10.
    pub const UCP_ATTR_FIELD_MEMORY_TYPES: ucp_context_attr_field = ucp_context_attr_field(
        4,
    );
    /// `name`. Since UCX 1.11.
    pub const UCP_ATTR_FIELD_NAME: ucp_context_attr_field = ucp_context_attr_field(8);
    /// `device_counter_size`. Since UCX 1.20.
    pub const UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE: ucp_context_attr_field = ucp_context_attr_field(
        16,
    );
}
impl ::core::ops::BitOr<ucp_context_attr_field> for ucp_context_attr_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_context_attr_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_context_attr_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_context_attr_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_context_attr_field> for ucp_context_attr_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_context_attr_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_context_attr_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_context_attr_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_context_attr_t are asked for.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_context_attr_field(pub ::core::ffi::c_uint);
/// What ucp_context_query gives.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct ucp_context_attr {
    /// Bits of ucp_context_attr_field.
    pub field_mask: u64,
    /// The size of the library's part of a request.
    pub request_size: usize,
    /// Which threads may call.
    pub thread_mode: ucs_thread_mode_t,
    /// The kinds of memory that it knows, one bit for each ucs_memory_type_t.
    pub memory_types: u64,
    /// Its name.
    pub name: [::core::ffi::c_char; 32usize],
    /// The size of a counter in device memory. Since UCX 1.20.
    pub device_counter_size: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ucp_context_attr"][::core::mem::size_of::<ucp_context_attr>() - 72usize];
    [
        "Alignment of ucp_context_attr",
    ][::core::mem::align_of::<ucp_context_attr>() - 8usize];
    [
        "Offset of field: ucp_context_attr::field_mask",
    ][::core::mem::offset_of!(ucp_context_attr, field_mask) - 0usize];
    [
        "Offset of field: ucp_context_attr::request_size",
    ][::core::mem::offset_of!(ucp_context_attr, request_size) - 8usize];
    [
        "Offset of field: ucp_context_attr::thread_mode",
    ][::core::mem::offset_of!(ucp_context_attr, thread_mode) - 16usize];
    [
        "Offset of field: ucp_context_attr::memory_types",
    ][::core::mem::offset_of!(ucp_context_attr, memory_types) - 24usize];
    [
        "Offset of field: ucp_context_attr::name",
    ][::core::mem::offset_of!(ucp_context_attr, name) - 32usize];
    [
        "Offset of field: ucp_context_attr::device_counter_size",
    ][::core::mem::offset_of!(ucp_context_attr, device_counter_size) - 64usize];
};
impl Default for ucp_context_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// What ucp_context_query gives.
pub type ucp_context_attr_t = ucp_context_attr;
/// A set of processors.
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct ucs_cpu_set_t {
    /// One bit for each processor.
    pub ucs_bits: [::core::ffi::c_ulong; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ucs_cpu_set_t"][::core::mem::size_of::<ucs_cpu_set_t>() - 128usize];
    ["Alignment of ucs_cpu_set_t"][::core::mem::align_of::<ucs_cpu_set_t>() - 8usize];
    [
        "Offset of field: ucs_cpu_set_t::ucs_bits",
    ][::core::mem::offset_of!(ucs_cpu_set_t, ucs_bits) - 0usize];
};
impl Mask for ucp_worker_params_field {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_WORKER_PARAM_FIELD_THREAD_MODE",
            Self::UCP_WORKER_PARAM_FIELD_THREAD_MODE.0,
            1020,
        ),
        Bit::new(
            "UCP_WORKER_PARAM_FIELD_CPU_MASK",
            Self::UCP_WORKER_PARAM_FIELD_CPU_MASK.0,
            1020,
        ),
        Bit::new(
            "UCP_WORKER_PARAM_FIELD_EVENTS",
            Self::UCP_WORKER_PARAM_FIELD_EVENTS.0,
            1020,
        ),
        Bit::new(
            "UCP_WORKER_PARAM_FIELD_USER_DATA",
            Self::UCP_WORKER_PARAM_FIELD_USER_DATA.0,
            1030,
        ),
        Bit::new(
            "UCP_WORKER_PARAM_FIELD_EVENT_FD",
            Self::UCP_WORKER_PARAM_FIELD_EVENT_FD.0,
            1030,
        ),
        Bit::new(
            "UCP_WORKER_PARAM_FIELD_FLAGS",
            Self::UCP_WORKER_PARAM_FIELD_FLAGS.0,
            1110,
        ),
        Bit::new(
            "UCP_WORKER_PARAM_FIELD_NAME",
            Self::UCP_WORKER_PARAM_FIELD_NAME.0,
            1110,
        ),
        Bit::new(
            "UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT",
            Self::UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT.0,
            1120,
        ),
        Bit::new(
            "UCP_WORKER_PARAM_FIELD_CLIENT_ID",
            Self::UCP_WORKER_PARAM_FIELD_CLIENT_ID.0,
            1120,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_worker_params_field {
    /// `thread_mode`. Since UCX 1.2.
    pub const UCP_WORKER_PARAM_FIELD_THREAD_MODE: ucp_worker_params_field = ucp_worker_params_field(
        1,
    );
    /// `cpu_mask`. Since UCX 1.2.
    pub const UCP_WORKER_PARAM_FIELD_CPU_MASK: ucp_worker_params_field = ucp_worker_params_field(
        2,
    );
    /// `events`. Since UCX 1.2.
    pub const UCP_WORKER_PARAM_FIELD_EVENTS: ucp_worker_params_field = ucp_worker_params_field(
        4,
    );
    /// `user_data`. Since UCX 1.3.
    pub const UCP_WORKER_PARAM_FIELD_USER_DATA: ucp_worker_params_field = ucp_worker_params_field(
        8,
    );
    /// `event_fd`. Since UCX 1.3.
    pub const UCP_WORKER_PARAM_FIELD_EVENT_FD: ucp_worker_params_field = ucp_worker_params_field(
        16,
    );
    /// `flags`. Since UCX 1.11.
    pub const UCP_WORKER_PARAM_FIELD_FLAGS: ucp_worker_params_field = ucp_worker_params_field(
        32,
    );
    /// `name`. Since UCX 1.11.
    pub const UCP_WORKER_PARAM_FIELD_NAME: ucp_worker_params_field = ucp_worker_params_field(
        64,
    );
    /// `am_alignment`. Since UCX 1.12.
    pub const UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT: ucp_worker_params_field = ucp_worker_params_field(
        128,
    );
    /// `client_id`. Since UCX 1.12.
    pub const UCP_WORKER_PARAM_FIELD_CLIENT_ID: ucp_worker_params_field = ucp_worker_params_field(
        256,
    );
}
impl ::core::ops::BitOr<ucp_worker_params_field> for ucp_worker_params_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_worker_params_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_worker_params_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_worker_params_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_worker_params_field> for ucp_worker_params_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_worker_params_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_worker_params_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_worker_params_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_worker_params_t are set.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_worker_params_field(pub ::core::ffi::c_uint);
/// Arguments of ucp_worker_create.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct ucp_worker_params {
    /// Bits of ucp_worker_params_field.
    pub field_mask: u64,
    /// Which threads will call.
    pub thread_mode: ucs_thread_mode_t,
    /// The processors of the threads that will call.
    pub cpu_mask: ucs_cpu_set_t,
    /// The kinds of events that wake a wait; all, if the field is not set.
    pub events: ::core::ffi::c_uint,
    /// A word that events on an external descriptor carry.
    pub user_data: *mut ::core::ffi::c_void,
    /// An external epoll descriptor, which gets the events.
    pub event_fd: ::core::ffi::c_int,
    /// Bits that change its behaviour.
    pub flags: u64,
    /// A name for logs.
    pub name: *const ::core::ffi::c_char,
    /// The alignment of the data that an active message's handler gets.
    pub am_alignment: usize,
    /// A number that peers learn from a connection request.
    pub client_id: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ucp_worker_params",
    ][::core::mem::size_of::<ucp_worker_params>() - 200usize];
    [
        "Alignment of ucp_worker_params",
    ][::core::mem::align_of::<ucp_worker_params>() - 8usize];
    [
        "Offset of field: ucp_worker_params::field_mask",
    ][::core::mem::offset_of!(ucp_worker_params, field_mask) - 0usize];
    [
        "Offset of field: ucp_worker_params::thread_mode",
    ][::core::mem::offset_of!(ucp_worker_params, thread_mode) - 8usize];
    [
        "Offset of field: ucp_worker_params::cpu_mask",
    ][::core::mem::offset_of!(ucp_worker_params, cpu_mask) - 16usize];
    [
        "Offset of field: ucp_worker_params::events",
    ][::core::mem::offset_of!(ucp_worker_params, events) - 144usize];
    [
        "Offset of field: ucp_worker_params::user_data",
    ][::core::mem::offset_of!(ucp_worker_params, user_data) - 152usize];
    [
        "Offset of field: ucp_worker_params::event_fd",
    ][::core::mem::offset_of!(ucp_worker_params, event_fd) - 160usize];
    [
        "Offset of field: ucp_worker_params::flags",
    ][::core::mem::offset_of!(ucp_worker_params, flags) - 168usize];
    [
        "Offset of field: ucp_worker_params::name",
    ][::core::mem::offset_of!(ucp_worker_params, name) - 176usize];
    [
        "Offset of field: ucp_worker_params::am_alignment",
    ][::core::mem::offset_of!(ucp_worker_params, am_alignment) - 184usize];
    [
        "Offset of field: ucp_worker_params::client_id",
    ][::core::mem::offset_of!(ucp_worker_params, client_id) - 192usize];
};
impl Default for ucp_worker_params {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// Arguments of ucp_worker_create.
pub type ucp_worker_params_t = ucp_worker_params;
impl Mask for ucp_worker_attr_field {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_WORKER_ATTR_FIELD_THREAD_MODE",
            Self::UCP_WORKER_ATTR_FIELD_THREAD_MODE.0,
            1020,
        ),
        Bit::new(
            "UCP_WORKER_ATTR_FIELD_ADDRESS",
            Self::UCP_WORKER_ATTR_FIELD_ADDRESS.0,
            1060,
        ),
        Bit::new(
            "UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS",
            Self::UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS.0,
            1060,
        ),
        Bit::new(
            "UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER",
            Self::UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER.0,
            1100,
        ),
        Bit::new("UCP_WORKER_ATTR_FIELD_NAME", Self::UCP_WORKER_ATTR_FIELD_NAME.0, 1110),
        Bit::new(
            "UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING",
            Self::UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING.0,
            1110,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_worker_attr_field {
    /// `thread_mode`. Since UCX 1.2.
    pub const UCP_WORKER_ATTR_FIELD_THREAD_MODE: ucp_worker_attr_field = ucp_worker_attr_field(
        1,
    );
    /// `address` and `address_length`. Since UCX 1.6.
    pub const UCP_WORKER_ATTR_FIELD_ADDRESS: ucp_worker_attr_field = ucp_worker_attr_field(
        2,
    );
    /// `address_flags`, which is an argument. Since UCX 1.6.
    pub const UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS: ucp_worker_attr_field = ucp_worker_attr_field(
        4,
    );
    /// `max_am_header`. Since UCX 1.10.
    pub const UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER: ucp_worker_attr_field = ucp_worker_attr_field(
        8,
    );
    /// `name`. Since UCX 1.11.
    pub const UCP_WORKER_ATTR_FIELD_NAME: ucp_worker_attr_field = ucp_worker_attr_field(
        16,
    );
    /// `max_debug_string`. Since UCX 1.11.
    pub const UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING: ucp_worker_attr_field = ucp_worker_attr_field(
        32,
    );
}
impl ::core::ops::BitOr<ucp_worker_attr_field> for ucp_worker_attr_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_worker_attr_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_worker_attr_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_worker_attr_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_worker_attr_field> for ucp_worker_attr_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_worker_attr_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_worker_attr_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_worker_attr_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_worker_attr_t are asked for.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_worker_attr_field(pub ::core::ffi::c_uint);
/// What ucp_worker_query gives.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct ucp_worker_attr {
    /// Bits of ucp_worker_attr_field.
    pub field_mask: u64,
    /// Which threads may call.
    pub thread_mode: ucs_thread_mode_t,
    /// Which parts of the address are wanted.
    pub address_flags: u32,
    /// The worker's address, which the caller must release.
    pub address: *mut ucp_address_t,
    /// Its length in bytes.
    pub address_length: usize,
    /// The most bytes of an active message's header.
    pub max_am_header: usize,
    /// Its name.
    pub name: [::core::ffi::c_char; 32usize],
    /// The size that the text of ucp_request_query needs at most.
    pub max_debug_string: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ucp_worker_attr"][::core::mem::size_of::<ucp_worker_attr>() - 80usize];
    [
        "Alignment of ucp_worker_attr",
    ][::core::mem::align_of::<ucp_worker_attr>() - 8usize];
    [
        "Offset of field: ucp_worker_attr::field_mask",
    ][::core::mem::offset_of!(ucp_worker_attr, field_mask) - 0usize];
    [
        "Offset of field: ucp_worker_attr::thread_mode",
    ][::core::mem::offset_of!(ucp_worker_attr, thread_mode) - 8usize];
    [
        "Offset of field: ucp_worker_attr::address_flags",
    ][::core::mem::offset_of!(ucp_worker_attr, address_flags) - 12usize];
    [
        "Offset of field: ucp_worker_attr::address",
    ][::core::mem::offset_of!(ucp_worker_attr, address) - 16usize];
    [
        "Offset of field: ucp_worker_attr::address_length",
    ][::core::mem::offset_of!(ucp_worker_attr, address_length) - 24usize];
    [
        "Offset of field: ucp_worker_attr::max_am_header",
    ][::core::mem::offset_of!(ucp_worker_attr, max_am_header) - 32usize];
    [
        "Offset of field: ucp_worker_attr::name",
    ][::core::mem::offset_of!(ucp_worker_attr, name) - 40usize];
    [
        "Offset of field: ucp_worker_attr::max_debug_string",
    ][::core::mem::offset_of!(ucp_worker_attr, max_debug_string) - 72usize];
};
impl Default for ucp_worker_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// What ucp_worker_query gives.
pub type ucp_worker_attr_t = ucp_worker_attr;
/// A socket's address.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ucs_sock_addr {
    /// The address.
    pub addr: *const sockaddr,
    /// Its length.
    pub addrlen: socklen_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ucs_sock_addr"][::core::mem::size_of::<ucs_sock_addr>() - 16usize];
    ["Alignment of ucs_sock_addr"][::core::mem::align_of::<ucs_sock_addr>() - 8usize];
    [
        "Offset of field: ucs_sock_addr::addr",
    ][::core::mem::offset_of!(ucs_sock_addr, addr) - 0usize];
    [
        "Offset of field: ucs_sock_addr::addrlen",
    ][::core::mem::offset_of!(ucs_sock_addr, addrlen) - 8usize];
};
impl Default for ucs_sock_addr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// A socket's address.
pub type ucs_sock_addr_t = ucs_sock_addr;
/// A function for endpoints that a listener makes by itself.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ucp_listener_accept_handler {
    /// The function.
    pub cb: ucp_listener_accept_callback_t,
    /// Its first argument.
    pub arg: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ucp_listener_accept_handler",
    ][::core::mem::size_of::<ucp_listener_accept_handler>() - 16usize];
    [
        "Alignment of ucp_listener_accept_handler",
    ][::core::mem::align_of::<ucp_listener_accept_handler>() - 8usize];
    [
        "Offset of field: ucp_listener_accept_handler::cb",
    ][::core::mem::offset_of!(ucp_listener_accept_handler, cb) - 0usize];
    [
        "Offset of field: ucp_listener_accept_handler::arg",
    ][::core::mem::offset_of!(ucp_listener_accept_handler, arg) - 8usize];
};
impl Default for ucp_listener_accept_handler {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// A function for endpoints that a listener makes by itself.
pub type ucp_listener_accept_handler_t = ucp_listener_accept_handler;
/// A function for peers that want to connect.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ucp_listener_conn_handler {
    /// The function.
    pub cb: ucp_listener_conn_callback_t,
    /// Its last argument.
    pub arg: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ucp_listener_conn_handler",
    ][::core::mem::size_of::<ucp_listener_conn_handler>() - 16usize];
    [
        "Alignment of ucp_listener_conn_handler",
    ][::core::mem::align_of::<ucp_listener_conn_handler>() - 8usize];
    [
        "Offset of field: ucp_listener_conn_handler::cb",
    ][::core::mem::offset_of!(ucp_listener_conn_handler, cb) - 0usize];
    [
        "Offset of field: ucp_listener_conn_handler::arg",
    ][::core::mem::offset_of!(ucp_listener_conn_handler, arg) - 8usize];
};
impl Default for ucp_listener_conn_handler {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// A function for peers that want to connect.
pub type ucp_listener_conn_handler_t = ucp_listener_conn_handler;
impl Mask for ucp_listener_params_field {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_LISTENER_PARAM_FIELD_SOCK_ADDR",
            Self::UCP_LISTENER_PARAM_FIELD_SOCK_ADDR.0,
            1030,
        ),
        Bit::new(
            "UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER",
            Self::UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER.0,
            1030,
        ),
        Bit::new(
            "UCP_LISTENER_PARAM_FIELD_CONN_HANDLER",
            Self::UCP_LISTENER_PARAM_FIELD_CONN_HANDLER.0,
            1050,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_listener_params_field {
    /// `sockaddr`. Since UCX 1.3.
    pub const UCP_LISTENER_PARAM_FIELD_SOCK_ADDR: ucp_listener_params_field = ucp_listener_params_field(
        1,
    );
    /// `accept_handler`. Since UCX 1.3.
    pub const UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER: ucp_listener_params_field = ucp_listener_params_field(
        2,
    );
    /// `conn_handler`. Since UCX 1.5.
    pub const UCP_LISTENER_PARAM_FIELD_CONN_HANDLER: ucp_listener_params_field = ucp_listener_params_field(
        4,
    );
}
impl ::core::ops::BitOr<ucp_listener_params_field> for ucp_listener_params_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_listener_params_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_listener_params_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_listener_params_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_listener_params_field> for ucp_listener_params_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_listener_params_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_listener_params_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_listener_params_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_listener_params_t are set.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_listener_params_field(pub ::core::ffi::c_uint);
/// Arguments of ucp_listener_create.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ucp_listener_params {
    /// Bits of ucp_listener_params_field.
    pub field_mask: u64,
    /// Where to listen.
    pub sockaddr: ucs_sock_addr_t,
    /// For endpoints that it makes by itself.
    pub accept_handler: ucp_listener_accept_handler_t,
    /// For peers that want to connect.
    pub conn_handler: ucp_listener_conn_handler_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ucp_listener_params",
    ][::core::mem::size_of::<ucp_listener_params>() - 56usize];
    [
        "Alignment of ucp_listener_params",
    ][::core::mem::align_of::<ucp_listener_params>() - 8usize];
    [
        "Offset of field: ucp_listener_params::field_mask",
    ][::core::mem::offset_of!(ucp_listener_params, field_mask) - 0usize];
    [
        "Offset of field: ucp_listener_params::sockaddr",
    ][::core::mem::offset_of!(ucp_listener_params, sockaddr) - 8usize];
    [
        "Offset of field: ucp_listener_params::accept_handler",
    ][::core::mem::offset_of!(ucp_listener_params, accept_handler) - 24usize];
    [
        "Offset of field: ucp_listener_params::conn_handler",
    ][::core::mem::offset_of!(ucp_listener_params, conn_handler) - 40usize];
};
impl Default for ucp_listener_params {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// Arguments of ucp_listener_create.
pub type ucp_listener_params_t = ucp_listener_params;
impl Mask for ucp_listener_attr_field {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_LISTENER_ATTR_FIELD_SOCKADDR",
            Self::UCP_LISTENER_ATTR_FIELD_SOCKADDR.0,
            1070,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_listener_attr_field {
    /// `sockaddr`. Since UCX 1.7.
    pub const UCP_LISTENER_ATTR_FIELD_SOCKADDR: ucp_listener_attr_field = ucp_listener_attr_field(
        1,
    );
}
impl ::core::ops::BitOr<ucp_listener_attr_field> for ucp_listener_attr_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_listener_attr_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_listener_attr_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_listener_attr_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_listener_attr_field> for ucp_listener_attr_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_listener_attr_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_listener_attr_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_listener_attr_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_listener_attr_t are asked for.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_listener_attr_field(pub ::core::ffi::c_uint);
/// What ucp_listener_query gives.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ucp_listener_attr {
    /// Bits of ucp_listener_attr_field.
    pub field_mask: u64,
    /// Where it listens, with the port that it got.
    pub sockaddr: sockaddr_storage,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ucp_listener_attr",
    ][::core::mem::size_of::<ucp_listener_attr>() - 136usize];
    [
        "Alignment of ucp_listener_attr",
    ][::core::mem::align_of::<ucp_listener_attr>() - 8usize];
    [
        "Offset of field: ucp_listener_attr::field_mask",
    ][::core::mem::offset_of!(ucp_listener_attr, field_mask) - 0usize];
    [
        "Offset of field: ucp_listener_attr::sockaddr",
    ][::core::mem::offset_of!(ucp_listener_attr, sockaddr) - 8usize];
};
impl Default for ucp_listener_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// What ucp_listener_query gives.
pub type ucp_listener_attr_t = ucp_listener_attr;
impl Mask for ucp_conn_request_attr_field {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR",
            Self::UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR.0,
            1090,
        ),
        Bit::new(
            "UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID",
            Self::UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID.0,
            1120,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_conn_request_attr_field {
    /// `client_address`. Since UCX 1.9.
    pub const UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR: ucp_conn_request_attr_field = ucp_conn_request_attr_field(
        1,
    );
    /// `client_id`. Since UCX 1.12.
    pub const UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID: ucp_conn_request_attr_field = ucp_conn_request_attr_field(
        2,
    );
}
impl ::core::ops::BitOr<ucp_conn_request_attr_field> for ucp_conn_request_attr_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_conn_request_attr_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_conn_request_attr_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_conn_request_attr_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_conn_request_attr_field> for ucp_conn_request_attr_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_conn_request_attr_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_conn_request_attr_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_conn_request_attr_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_conn_request_attr_t are asked for.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_conn_request_attr_field(pub ::core::ffi::c_uint);
/// What ucp_conn_request_query gives.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ucp_conn_request_attr {
    /// Bits of ucp_conn_request_attr_field.
    pub field_mask: u64,
    /// Who wants to connect.
    pub client_address: sockaddr_storage,
    /// The number that the peer's worker has, if the peer sends it.
    pub client_id: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ucp_conn_request_attr",
    ][::core::mem::size_of::<ucp_conn_request_attr>() - 144usize];
    [
        "Alignment of ucp_conn_request_attr",
    ][::core::mem::align_of::<ucp_conn_request_attr>() - 8usize];
    [
        "Offset of field: ucp_conn_request_attr::field_mask",
    ][::core::mem::offset_of!(ucp_conn_request_attr, field_mask) - 0usize];
    [
        "Offset of field: ucp_conn_request_attr::client_address",
    ][::core::mem::offset_of!(ucp_conn_request_attr, client_address) - 8usize];
    [
        "Offset of field: ucp_conn_request_attr::client_id",
    ][::core::mem::offset_of!(ucp_conn_request_attr, client_id) - 136usize];
};
impl Default for ucp_conn_request_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// What ucp_conn_request_query gives.
pub type ucp_conn_request_attr_t = ucp_conn_request_attr;
impl Mask for ucp_ep_params_field {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_EP_PARAM_FIELD_REMOTE_ADDRESS",
            Self::UCP_EP_PARAM_FIELD_REMOTE_ADDRESS.0,
            1020,
        ),
        Bit::new(
            "UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE",
            Self::UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE.0,
            1020,
        ),
        Bit::new(
            "UCP_EP_PARAM_FIELD_ERR_HANDLER",
            Self::UCP_EP_PARAM_FIELD_ERR_HANDLER.0,
            1020,
        ),
        Bit::new(
            "UCP_EP_PARAM_FIELD_USER_DATA",
            Self::UCP_EP_PARAM_FIELD_USER_DATA.0,
            1030,
        ),
        Bit::new(
            "UCP_EP_PARAM_FIELD_SOCK_ADDR",
            Self::UCP_EP_PARAM_FIELD_SOCK_ADDR.0,
            1030,
        ),
        Bit::new("UCP_EP_PARAM_FIELD_FLAGS", Self::UCP_EP_PARAM_FIELD_FLAGS.0, 1030),
        Bit::new(
            "UCP_EP_PARAM_FIELD_CONN_REQUEST",
            Self::UCP_EP_PARAM_FIELD_CONN_REQUEST.0,
            1050,
        ),
        Bit::new("UCP_EP_PARAM_FIELD_NAME", Self::UCP_EP_PARAM_FIELD_NAME.0, 1110),
        Bit::new(
            "UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR",
            Self::UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR.0,
            1130,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_ep_params_field {
    /// `address`. Since UCX 1.2.
    pub const UCP_EP_PARAM_FIELD_REMOTE_ADDRESS: ucp_ep_params_field = ucp_ep_params_field(
        1,
    );
    /// `err_mode`. Since UCX 1.2.
    pub const UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE: ucp_ep_params_field = ucp_ep_params_field(
        2,
    );
    /// `err_handler`. Since UCX 1.2.
    pub const UCP_EP_PARAM_FIELD_ERR_HANDLER: ucp_ep_params_field = ucp_ep_params_field(
        4,
    );
    /// `user_data`. Since UCX 1.3.
    pub const UCP_EP_PARAM_FIELD_USER_DATA: ucp_ep_params_field = ucp_ep_params_field(8);
    /// `sockaddr`. Since UCX 1.3.
    pub const UCP_EP_PARAM_FIELD_SOCK_ADDR: ucp_ep_params_field = ucp_ep_params_field(
        16,
    );
    /// `flags`. Since UCX 1.3.
    pub const UCP_EP_PARAM_FIELD_FLAGS: ucp_ep_params_field = ucp_ep_params_field(32);
    /// `conn_request`. Since UCX 1.5.
    pub const UCP_EP_PARAM_FIELD_CONN_REQUEST: ucp_ep_params_field = ucp_ep_params_field(
        64,
    );
    /// `name`. Since UCX 1.11.
    pub const UCP_EP_PARAM_FIELD_NAME: ucp_ep_params_field = ucp_ep_params_field(128);
    /// `local_sockaddr`. Since UCX 1.13.
    pub const UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR: ucp_ep_params_field = ucp_ep_params_field(
        256,
    );
}
impl ::core::ops::BitOr<ucp_ep_params_field> for ucp_ep_params_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_ep_params_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_ep_params_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_ep_params_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_ep_params_field> for ucp_ep_params_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_ep_params_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_ep_params_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_ep_params_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_ep_params_t are set.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_ep_params_field(pub ::core::ffi::c_uint);
impl Mask for ucp_ep_params_flags_field {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_EP_PARAMS_FLAGS_CLIENT_SERVER",
            Self::UCP_EP_PARAMS_FLAGS_CLIENT_SERVER.0,
            1030,
        ),
        Bit::new(
            "UCP_EP_PARAMS_FLAGS_NO_LOOPBACK",
            Self::UCP_EP_PARAMS_FLAGS_NO_LOOPBACK.0,
            1040,
        ),
        Bit::new(
            "UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID",
            Self::UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID.0,
            1120,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_ep_params_flags_field {
    /// By connecting to the listener at `sockaddr`. Since UCX 1.3.
    pub const UCP_EP_PARAMS_FLAGS_CLIENT_SERVER: ucp_ep_params_flags_field = ucp_ep_params_flags_field(
        1,
    );
    /// Never to the own worker. Since UCX 1.4.
    pub const UCP_EP_PARAMS_FLAGS_NO_LOOPBACK: ucp_ep_params_flags_field = ucp_ep_params_flags_field(
        2,
    );
    /// With the worker's `client_id`. Since UCX 1.12.
    pub const UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID: ucp_ep_params_flags_field = ucp_ep_params_flags_field(
        4,
    );
}
impl ::core::ops::BitOr<ucp_ep_params_flags_field> for ucp_ep_params_flags_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_ep_params_flags_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_ep_params_flags_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_ep_params_flags_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_ep_params_flags_field> for ucp_ep_params_flags_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_ep_params_flags_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_ep_params_flags_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_ep_params_flags_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// How an endpoint is made.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_ep_params_flags_field(pub ::core::ffi::c_uint);
/// A function for a failed endpoint.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ucp_err_handler {
    /// The function.
    pub cb: ucp_err_handler_cb_t,
    /// Its first argument.
    pub arg: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ucp_err_handler"][::core::mem::size_of::<ucp_err_handler>() - 16usize];
    [
        "Alignment of ucp_err_handler",
    ][::core::mem::align_of::<ucp_err_handler>() - 8usize];
    [
        "Offset of field: ucp_err_handler::cb",
    ][::core::mem::offset_of!(ucp_err_handler, cb) - 0usize];
    [
        "Offset of field: ucp_err_handler::arg",
    ][::core::mem::offset_of!(ucp_err_handler, arg) - 8usize];
};
impl Default for ucp_err_handler {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// A function for a failed endpoint.
pub type ucp_err_handler_t = ucp_err_handler;
/// Arguments of ucp_ep_create.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ucp_ep_params {
    /// Bits of ucp_ep_params_field.
    pub field_mask: u64,
    /// The peer's worker.
    pub address: *const ucp_address_t,
    /// How a lost peer shows.
    pub err_mode: ucp_err_handling_mode_t,
    /// Told of errors.
    pub err_handler: ucp_err_handler_t,
    /// The endpoint's word: the error handler's first argument, unless that has its own.
    pub user_data: *mut ::core::ffi::c_void,
    /// Bits of ucp_ep_params_flags_field.
    pub flags: ::core::ffi::c_uint,
    /// Where the peer listens.
    pub sockaddr: ucs_sock_addr_t,
    /// The peer's wish that this endpoint grants.
    pub conn_request: ucp_conn_request_h,
    /// A name for logs.
    pub name: *const ::core::ffi::c_char,
    /// The own address to connect from.
    pub local_sockaddr: ucs_sock_addr_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ucp_ep_params"][::core::mem::size_of::<ucp_ep_params>() - 104usize];
    ["Alignment of ucp_ep_params"][::core::mem::align_of::<ucp_ep_params>() - 8usize];
    [
        "Offset of field: ucp_ep_params::field_mask",
    ][::core::mem::offset_of!(ucp_ep_params, field_mask) - 0usize];
    [
        "Offset of field: ucp_ep_params::address",
    ][::core::mem::offset_of!(ucp_ep_params, address) - 8usize];
    [
        "Offset of field: ucp_ep_params::err_mode",
    ][::core::mem::offset_of!(ucp_ep_params, err_mode) - 16usize];
    [
        "Offset of field: ucp_ep_params::err_handler",
    ][::core::mem::offset_of!(ucp_ep_params, err_handler) - 24usize];
    [
        "Offset of field: ucp_ep_params::user_data",
    ][::core::mem::offset_of!(ucp_ep_params, user_data) - 40usize];
    [
        "Offset of field: ucp_ep_params::flags",
    ][::core::mem::offset_of!(ucp_ep_params, flags) - 48usize];
    [
        "Offset of field: ucp_ep_params::sockaddr",
    ][::core::mem::offset_of!(ucp_ep_params, sockaddr) - 56usize];
    [
        "Offset of field: ucp_ep_params::conn_request",
    ][::core::mem::offset_of!(ucp_ep_params, conn_request) - 72usize];
    [
        "Offset of field: ucp_ep_params::name",
    ][::core::mem::offset_of!(ucp_ep_params, name) - 80usize];
    [
        "Offset of field: ucp_ep_params::local_sockaddr",
    ][::core::mem::offset_of!(ucp_ep_params, local_sockaddr) - 88usize];
};
impl Default for ucp_ep_params {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// Arguments of ucp_ep_create.
pub type ucp_ep_params_t = ucp_ep_params;
impl Mask for ucp_ep_close_flags_t {
    const BITS: &'static [Bit] = &[
        Bit::new("UCP_EP_CLOSE_FLAG_FORCE", Self::UCP_EP_CLOSE_FLAG_FORCE.0, 1090),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_ep_close_flags_t {
    /// At once, whatever is under way. Since UCX 1.9.
    pub const UCP_EP_CLOSE_FLAG_FORCE: ucp_ep_close_flags_t = ucp_ep_close_flags_t(1);
}
impl ::core::ops::BitOr<ucp_ep_close_flags_t> for ucp_ep_close_flags_t {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_ep_close_flags_t(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_ep_close_flags_t {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_ep_close_flags_t) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_ep_close_flags_t> for ucp_ep_close_flags_t {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_ep_close_flags_t(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_ep_close_flags_t {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_ep_close_flags_t) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// How an endpoint is closed: `flags` of ucp_request_param_t.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_ep_close_flags_t(pub ::core::ffi::c_uint);
/// One way by which an endpoint reaches its peer.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct ucp_transport_entry_t {
    /// The transport: `tcp`, `cuda_ipc`.
    pub transport_name: *const ::core::ffi::c_char,
    /// The device that carries it: `eth0`.
    pub device_name: *const ::core::ffi::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ucp_transport_entry_t",
    ][::core::mem::size_of::<ucp_transport_entry_t>() - 16usize];
    [
        "Alignment of ucp_transport_entry_t",
    ][::core::mem::align_of::<ucp_transport_entry_t>() - 8usize];
    [
        "Offset of field: ucp_transport_entry_t::transport_name",
    ][::core::mem::offset_of!(ucp_transport_entry_t, transport_name) - 0usize];
    [
        "Offset of field: ucp_transport_entry_t::device_name",
    ][::core::mem::offset_of!(ucp_transport_entry_t, device_name) - 8usize];
};
impl Default for ucp_transport_entry_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// A place for an endpoint's ways, which the caller provides.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct ucp_transports_t {
    /// The entries.
    pub entries: *mut ucp_transport_entry_t,
    /// How many there is room for; after the call, how many there are.
    pub num_entries: ::core::ffi::c_uint,
    /// The size of one entry.
    pub entry_size: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ucp_transports_t"][::core::mem::size_of::<ucp_transports_t>() - 24usize];
    [
        "Alignment of ucp_transports_t",
    ][::core::mem::align_of::<ucp_transports_t>() - 8usize];
    [
        "Offset of field: ucp_transports_t::entries",
    ][::core::mem::offset_of!(ucp_transports_t, entries) - 0usize];
    [
        "Offset of field: ucp_transports_t::num_entries",
    ][::core::mem::offset_of!(ucp_transports_t, num_entries) - 8usize];
    [
        "Offset of field: ucp_transports_t::entry_size",
    ][::core::mem::offset_of!(ucp_transports_t, entry_size) - 16usize];
};
impl Default for ucp_transports_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Mask for ucp_ep_attr_field {
    const BITS: &'static [Bit] = &[
        Bit::new("UCP_EP_ATTR_FIELD_NAME", Self::UCP_EP_ATTR_FIELD_NAME.0, 1110),
        Bit::new(
            "UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR",
            Self::UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR.0,
            1120,
        ),
        Bit::new(
            "UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR",
            Self::UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR.0,
            1120,
        ),
        Bit::new(
            "UCP_EP_ATTR_FIELD_TRANSPORTS",
            Self::UCP_EP_ATTR_FIELD_TRANSPORTS.0,
            1140,
        ),
        Bit::new(
            "UCP_EP_ATTR_FIELD_USER_DATA",
            Self::UCP_EP_ATTR_FIELD_USER_DATA.0,
            1180,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_ep_attr_field {
    /// `name`. Since UCX 1.11.
    pub const UCP_EP_ATTR_FIELD_NAME: ucp_ep_attr_field = ucp_ep_attr_field(1);
    /// `local_sockaddr`. Since UCX 1.12.
    pub const UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR: ucp_ep_attr_field = ucp_ep_attr_field(2);
    /// `remote_sockaddr`. Since UCX 1.12.
    pub const UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR: ucp_ep_attr_field = ucp_ep_attr_field(
        4,
    );
    /// `transports`. Since UCX 1.14.
    pub const UCP_EP_ATTR_FIELD_TRANSPORTS: ucp_ep_attr_field = ucp_ep_attr_field(8);
    /// `user_data`. Since UCX 1.18.
    pub const UCP_EP_ATTR_FIELD_USER_DATA: ucp_ep_attr_field = ucp_ep_attr_field(16);
}
impl ::core::ops::BitOr<ucp_ep_attr_field> for ucp_ep_attr_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_ep_attr_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_ep_attr_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_ep_attr_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_ep_attr_field> for ucp_ep_attr_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_ep_attr_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_ep_attr_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_ep_attr_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_ep_attr_t are asked for.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_ep_attr_field(pub ::core::ffi::c_uint);
/// What ucp_ep_query gives.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ucp_ep_attr {
    /// Bits of ucp_ep_attr_field.
    pub field_mask: u64,
    /// Its name.
    pub name: [::core::ffi::c_char; 32usize],
    /// The own address.
    pub local_sockaddr: sockaddr_storage,
    /// The peer's address.
    pub remote_sockaddr: sockaddr_storage,
    /// The ways to the peer; `entries`, `num_entries` and `entry_size` are arguments.
    pub transports: ucp_transports_t,
    /// The word that the endpoint was made with. Since UCX 1.18.
    pub user_data: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ucp_ep_attr"][::core::mem::size_of::<ucp_ep_attr>() - 328usize];
    ["Alignment of ucp_ep_attr"][::core::mem::align_of::<ucp_ep_attr>() - 8usize];
    [
        "Offset of field: ucp_ep_attr::field_mask",
    ][::core::mem::offset_of!(ucp_ep_attr, field_mask) - 0usize];
    [
        "Offset of field: ucp_ep_attr::name",
    ][::core::mem::offset_of!(ucp_ep_attr, name) - 8usize];
    [
        "Offset of field: ucp_ep_attr::local_sockaddr",
    ][::core::mem::offset_of!(ucp_ep_attr, local_sockaddr) - 40usize];
    [
        "Offset of field: ucp_ep_attr::remote_sockaddr",
    ][::core::mem::offset_of!(ucp_ep_attr, remote_sockaddr) - 168usize];
    [
        "Offset of field: ucp_ep_attr::transports",
    ][::core::mem::offset_of!(ucp_ep_attr, transports) - 296usize];
    [
        "Offset of field: ucp_ep_attr::user_data",
    ][::core::mem::offset_of!(ucp_ep_attr, user_data) - 320usize];
};
impl Default for ucp_ep_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// What ucp_ep_query gives.
pub type ucp_ep_attr_t = ucp_ep_attr;
impl Mask for ucp_mem_map_params_field {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_MEM_MAP_PARAM_FIELD_ADDRESS",
            Self::UCP_MEM_MAP_PARAM_FIELD_ADDRESS.0,
            1020,
        ),
        Bit::new(
            "UCP_MEM_MAP_PARAM_FIELD_LENGTH",
            Self::UCP_MEM_MAP_PARAM_FIELD_LENGTH.0,
            1020,
        ),
        Bit::new(
            "UCP_MEM_MAP_PARAM_FIELD_FLAGS",
            Self::UCP_MEM_MAP_PARAM_FIELD_FLAGS.0,
            1020,
        ),
        Bit::new(
            "UCP_MEM_MAP_PARAM_FIELD_PROT",
            Self::UCP_MEM_MAP_PARAM_FIELD_PROT.0,
            1100,
        ),
        Bit::new(
            "UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE",
            Self::UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE.0,
            1100,
        ),
        Bit::new(
            "UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER",
            Self::UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER.0,
            1140,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_mem_map_params_field {
    /// `address`. Since UCX 1.2.
    pub const UCP_MEM_MAP_PARAM_FIELD_ADDRESS: ucp_mem_map_params_field = ucp_mem_map_params_field(
        1,
    );
    /// `length`. Since UCX 1.2.
    pub const UCP_MEM_MAP_PARAM_FIELD_LENGTH: ucp_mem_map_params_field = ucp_mem_map_params_field(
        2,
    );
    /// `flags`. Since UCX 1.2.
    pub const UCP_MEM_MAP_PARAM_FIELD_FLAGS: ucp_mem_map_params_field = ucp_mem_map_params_field(
        4,
    );
    /// `prot`. Since UCX 1.10.
    pub const UCP_MEM_MAP_PARAM_FIELD_PROT: ucp_mem_map_params_field = ucp_mem_map_params_field(
        8,
    );
    /// `memory_type`. Since UCX 1.10.
    pub const UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE: ucp_mem_map_params_field = ucp_mem_map_params_field(
        16,
    );
    /// `exported_memh_buffer`. Since UCX 1.14.
    pub const UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER: ucp_mem_map_params_field = ucp_mem_map_params_field(
        32,
    );
}
impl ::core::ops::BitOr<ucp_mem_map_params_field> for ucp_mem_map_params_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_mem_map_params_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_mem_map_params_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_mem_map_params_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_mem_map_params_field> for ucp_mem_map_params_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_mem_map_params_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_mem_map_params_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_mem_map_params_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_mem_map_params_t are set.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_mem_map_params_field(pub ::core::ffi::c_uint);
impl Mask for ucp_mem_map_flags {
    const BITS: &'static [Bit] = &[
        Bit::new("UCP_MEM_MAP_NONBLOCK", Self::UCP_MEM_MAP_NONBLOCK.0, 1020),
        Bit::new("UCP_MEM_MAP_ALLOCATE", Self::UCP_MEM_MAP_ALLOCATE.0, 1020),
        Bit::new("UCP_MEM_MAP_FIXED", Self::UCP_MEM_MAP_FIXED.0, 1020),
        Bit::new("UCP_MEM_MAP_SYMMETRIC_RKEY", Self::UCP_MEM_MAP_SYMMETRIC_RKEY.0, 1160),
        Bit::new("UCP_MEM_MAP_LOCK", Self::UCP_MEM_MAP_LOCK.0, 1180),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_mem_map_flags {
    /// Page by page, as it is used. Since UCX 1.2.
    pub const UCP_MEM_MAP_NONBLOCK: ucp_mem_map_flags = ucp_mem_map_flags(1);
    /// Allocated by the call. Since UCX 1.2.
    pub const UCP_MEM_MAP_ALLOCATE: ucp_mem_map_flags = ucp_mem_map_flags(2);
    /// Allocated at `address` exactly. Since UCX 1.2.
    pub const UCP_MEM_MAP_FIXED: ucp_mem_map_flags = ucp_mem_map_flags(4);
    /// With keys that are alike for all peers. Since UCX 1.16.
    pub const UCP_MEM_MAP_SYMMETRIC_RKEY: ucp_mem_map_flags = ucp_mem_map_flags(8);
    /// With its pages locked. Since UCX 1.18.
    pub const UCP_MEM_MAP_LOCK: ucp_mem_map_flags = ucp_mem_map_flags(16);
}
impl ::core::ops::BitOr<ucp_mem_map_flags> for ucp_mem_map_flags {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_mem_map_flags(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_mem_map_flags {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_mem_map_flags) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_mem_map_flags> for ucp_mem_map_flags {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_mem_map_flags(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_mem_map_flags {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_mem_map_flags) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// How memory is registered.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_mem_map_flags(pub ::core::ffi::c_uint);
impl Mask for ucp_mem_map_prot {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_MEM_MAP_PROT_LOCAL_READ",
            Self::UCP_MEM_MAP_PROT_LOCAL_READ.0,
            1100,
        ),
        Bit::new(
            "UCP_MEM_MAP_PROT_LOCAL_WRITE",
            Self::UCP_MEM_MAP_PROT_LOCAL_WRITE.0,
            1100,
        ),
        Bit::new(
            "UCP_MEM_MAP_PROT_REMOTE_READ",
            Self::UCP_MEM_MAP_PROT_REMOTE_READ.0,
            1100,
        ),
        Bit::new(
            "UCP_MEM_MAP_PROT_REMOTE_WRITE",
            Self::UCP_MEM_MAP_PROT_REMOTE_WRITE.0,
            1100,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_mem_map_prot {
    /// This process reads. Since UCX 1.10.
    pub const UCP_MEM_MAP_PROT_LOCAL_READ: ucp_mem_map_prot = ucp_mem_map_prot(1);
    /// This process writes. Since UCX 1.10.
    pub const UCP_MEM_MAP_PROT_LOCAL_WRITE: ucp_mem_map_prot = ucp_mem_map_prot(2);
    /// Peers read. Since UCX 1.10.
    pub const UCP_MEM_MAP_PROT_REMOTE_READ: ucp_mem_map_prot = ucp_mem_map_prot(256);
    /// Peers write. Since UCX 1.10.
    pub const UCP_MEM_MAP_PROT_REMOTE_WRITE: ucp_mem_map_prot = ucp_mem_map_prot(512);
}
impl ::core::ops::BitOr<ucp_mem_map_prot> for ucp_mem_map_prot {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_mem_map_prot(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_mem_map_prot {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_mem_map_prot) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_mem_map_prot> for ucp_mem_map_prot {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_mem_map_prot(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_mem_map_prot {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_mem_map_prot) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Who may do what with registered memory.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_mem_map_prot(pub ::core::ffi::c_uint);
/// Arguments of ucp_mem_map.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct ucp_mem_map_params {
    /// Bits of ucp_mem_map_params_field.
    pub field_mask: u64,
    /// Where the memory begins.
    pub address: *mut ::core::ffi::c_void,
    /// Its size in bytes.
    pub length: usize,
    /// Bits of ucp_mem_map_flags.
    pub flags: ::core::ffi::c_uint,
    /// Bits of ucp_mem_map_prot.
    pub prot: ::core::ffi::c_uint,
    /// Its kind.
    pub memory_type: ucs_memory_type_t,
    /// Another process's registration, to be imported.
    pub exported_memh_buffer: *const ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ucp_mem_map_params",
    ][::core::mem::size_of::<ucp_mem_map_params>() - 48usize];
    [
        "Alignment of ucp_mem_map_params",
    ][::core::mem::align_of::<ucp_mem_map_params>() - 8usize];
    [
        "Offset of field: ucp_mem_map_params::field_mask",
    ][::core::mem::offset_of!(ucp_mem_map_params, field_mask) - 0usize];
    [
        "Offset of field: ucp_mem_map_params::address",
    ][::core::mem::offset_of!(ucp_mem_map_params, address) - 8usize];
    [
        "Offset of field: ucp_mem_map_params::length",
    ][::core::mem::offset_of!(ucp_mem_map_params, length) - 16usize];
    [
        "Offset of field: ucp_mem_map_params::flags",
    ][::core::mem::offset_of!(ucp_mem_map_params, flags) - 24usize];
    [
        "Offset of field: ucp_mem_map_params::prot",
    ][::core::mem::offset_of!(ucp_mem_map_params, prot) - 28usize];
    [
        "Offset of field: ucp_mem_map_params::memory_type",
    ][::core::mem::offset_of!(ucp_mem_map_params, memory_type) - 32usize];
    [
        "Offset of field: ucp_mem_map_params::exported_memh_buffer",
    ][::core::mem::offset_of!(ucp_mem_map_params, exported_memh_buffer) - 40usize];
};
impl Default for ucp_mem_map_params {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// Arguments of ucp_mem_map.
pub type ucp_mem_map_params_t = ucp_mem_map_params;
impl Mask for ucp_mem_attr_field {
    const BITS: &'static [Bit] = &[
        Bit::new("UCP_MEM_ATTR_FIELD_ADDRESS", Self::UCP_MEM_ATTR_FIELD_ADDRESS.0, 1020),
        Bit::new("UCP_MEM_ATTR_FIELD_LENGTH", Self::UCP_MEM_ATTR_FIELD_LENGTH.0, 1020),
        Bit::new(
            "UCP_MEM_ATTR_FIELD_MEM_TYPE",
            Self::UCP_MEM_ATTR_FIELD_MEM_TYPE.0,
            1110,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_mem_attr_field {
    /// `address`. Since UCX 1.2.
    pub const UCP_MEM_ATTR_FIELD_ADDRESS: ucp_mem_attr_field = ucp_mem_attr_field(1);
    /// `length`. Since UCX 1.2.
    pub const UCP_MEM_ATTR_FIELD_LENGTH: ucp_mem_attr_field = ucp_mem_attr_field(2);
    /// `mem_type`. Since UCX 1.11.
    pub const UCP_MEM_ATTR_FIELD_MEM_TYPE: ucp_mem_attr_field = ucp_mem_attr_field(4);
}
impl ::core::ops::BitOr<ucp_mem_attr_field> for ucp_mem_attr_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_mem_attr_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_mem_attr_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_mem_attr_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_mem_attr_field> for ucp_mem_attr_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_mem_attr_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_mem_attr_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_mem_attr_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_mem_attr_t are asked for.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_mem_attr_field(pub ::core::ffi::c_uint);
/// What ucp_mem_query gives.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct ucp_mem_attr {
    /// Bits of ucp_mem_attr_field.
    pub field_mask: u64,
    /// Where the memory begins.
    pub address: *mut ::core::ffi::c_void,
    /// Its size in bytes.
    pub length: usize,
    /// Its kind.
    pub mem_type: ucs_memory_type_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ucp_mem_attr"][::core::mem::size_of::<ucp_mem_attr>() - 32usize];
    ["Alignment of ucp_mem_attr"][::core::mem::align_of::<ucp_mem_attr>() - 8usize];
    [
        "Offset of field: ucp_mem_attr::field_mask",
    ][::core::mem::offset_of!(ucp_mem_attr, field_mask) - 0usize];
    [
        "Offset of field: ucp_mem_attr::address",
    ][::core::mem::offset_of!(ucp_mem_attr, address) - 8usize];
    [
        "Offset of field: ucp_mem_attr::length",
    ][::core::mem::offset_of!(ucp_mem_attr, length) - 16usize];
    [
        "Offset of field: ucp_mem_attr::mem_type",
    ][::core::mem::offset_of!(ucp_mem_attr, mem_type) - 24usize];
};
impl Default for ucp_mem_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// What ucp_mem_query gives.
pub type ucp_mem_attr_t = ucp_mem_attr;
impl Mask for ucp_op_attr_t {
    const BITS: &'static [Bit] = &[
        Bit::new("UCP_OP_ATTR_FIELD_REQUEST", Self::UCP_OP_ATTR_FIELD_REQUEST.0, 1090),
        Bit::new("UCP_OP_ATTR_FIELD_CALLBACK", Self::UCP_OP_ATTR_FIELD_CALLBACK.0, 1090),
        Bit::new(
            "UCP_OP_ATTR_FIELD_USER_DATA",
            Self::UCP_OP_ATTR_FIELD_USER_DATA.0,
            1090,
        ),
        Bit::new("UCP_OP_ATTR_FIELD_DATATYPE", Self::UCP_OP_ATTR_FIELD_DATATYPE.0, 1090),
        Bit::new("UCP_OP_ATTR_FIELD_FLAGS", Self::UCP_OP_ATTR_FIELD_FLAGS.0, 1090),
        Bit::new(
            "UCP_OP_ATTR_FIELD_REPLY_BUFFER",
            Self::UCP_OP_ATTR_FIELD_REPLY_BUFFER.0,
            1090,
        ),
        Bit::new(
            "UCP_OP_ATTR_FIELD_MEMORY_TYPE",
            Self::UCP_OP_ATTR_FIELD_MEMORY_TYPE.0,
            1100,
        ),
        Bit::new(
            "UCP_OP_ATTR_FIELD_RECV_INFO",
            Self::UCP_OP_ATTR_FIELD_RECV_INFO.0,
            1100,
        ),
        Bit::new("UCP_OP_ATTR_FIELD_MEMH", Self::UCP_OP_ATTR_FIELD_MEMH.0, 1130),
        Bit::new(
            "UCP_OP_ATTR_FIELD_REMOTE_DATATYPE",
            Self::UCP_OP_ATTR_FIELD_REMOTE_DATATYPE.0,
            1220,
        ),
        Bit::new("UCP_OP_ATTR_FIELD_REMOTE", Self::UCP_OP_ATTR_FIELD_REMOTE.0, 1220),
        Bit::new(
            "UCP_OP_ATTR_FIELD_REMOTE_COUNT",
            Self::UCP_OP_ATTR_FIELD_REMOTE_COUNT.0,
            1220,
        ),
        Bit::new(
            "UCP_OP_ATTR_FLAG_NO_IMM_CMPL",
            Self::UCP_OP_ATTR_FLAG_NO_IMM_CMPL.0,
            1090,
        ),
        Bit::new("UCP_OP_ATTR_FLAG_FAST_CMPL", Self::UCP_OP_ATTR_FLAG_FAST_CMPL.0, 1090),
        Bit::new(
            "UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL",
            Self::UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL.0,
            1090,
        ),
        Bit::new(
            "UCP_OP_ATTR_FLAG_MULTI_SEND",
            Self::UCP_OP_ATTR_FLAG_MULTI_SEND.0,
            1120,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_op_attr_t {
    /// `request`. Since UCX 1.9.
    pub const UCP_OP_ATTR_FIELD_REQUEST: ucp_op_attr_t = ucp_op_attr_t(1);
    /// `cb`. Since UCX 1.9.
    pub const UCP_OP_ATTR_FIELD_CALLBACK: ucp_op_attr_t = ucp_op_attr_t(2);
    /// `user_data`. Since UCX 1.9.
    pub const UCP_OP_ATTR_FIELD_USER_DATA: ucp_op_attr_t = ucp_op_attr_t(4);
    /// `datatype`. Since UCX 1.9.
    pub const UCP_OP_ATTR_FIELD_DATATYPE: ucp_op_attr_t = ucp_op_attr_t(8);
    /// `flags`. Since UCX 1.9.
    pub const UCP_OP_ATTR_FIELD_FLAGS: ucp_op_attr_t = ucp_op_attr_t(16);
    /// `reply_buffer`. Since UCX 1.9.
    pub const UCP_OP_ATTR_FIELD_REPLY_BUFFER: ucp_op_attr_t = ucp_op_attr_t(32);
    /// `memory_type`. Since UCX 1.10.
    pub const UCP_OP_ATTR_FIELD_MEMORY_TYPE: ucp_op_attr_t = ucp_op_attr_t(64);
    /// `recv_info`. Since UCX 1.10.
    pub const UCP_OP_ATTR_FIELD_RECV_INFO: ucp_op_attr_t = ucp_op_attr_t(128);
    /// `memh`. Since UCX 1.13.
    pub const UCP_OP_ATTR_FIELD_MEMH: ucp_op_attr_t = ucp_op_attr_t(256);
    /// `remote_datatype`. Since UCX 1.22.
    pub const UCP_OP_ATTR_FIELD_REMOTE_DATATYPE: ucp_op_attr_t = ucp_op_attr_t(512);
    /// `remote`. Since UCX 1.22.
    pub const UCP_OP_ATTR_FIELD_REMOTE: ucp_op_attr_t = ucp_op_attr_t(1024);
    /// `remote_count`. Since UCX 1.22.
    pub const UCP_OP_ATTR_FIELD_REMOTE_COUNT: ucp_op_attr_t = ucp_op_attr_t(2048);
    /// Gives a request even if the operation is done at once, and calls `cb`. Since UCX 1.9.
    pub const UCP_OP_ATTR_FLAG_NO_IMM_CMPL: ucp_op_attr_t = ucp_op_attr_t(65536);
    /// Is done earlier, at the cost of more work. Since UCX 1.9.
    pub const UCP_OP_ATTR_FLAG_FAST_CMPL: ucp_op_attr_t = ucp_op_attr_t(131072);
    /// Is done at once or fails. Since UCX 1.9.
    pub const UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL: ucp_op_attr_t = ucp_op_attr_t(262144);
    /// Is one of several in a row, so that their rate counts, not the time of each. Since UCX 1.12.
    pub const UCP_OP_ATTR_FLAG_MULTI_SEND: ucp_op_attr_t = ucp_op_attr_t(524288);
}
impl ::core::ops::BitOr<ucp_op_attr_t> for ucp_op_attr_t {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_op_attr_t(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_op_attr_t {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_op_attr_t) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_op_attr_t> for ucp_op_attr_t {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_op_attr_t(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_op_attr_t {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_op_attr_t) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_request_param_t are set, and how the operation behaves.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_op_attr_t(pub ::core::ffi::c_uint);
/// Arguments that all operations have.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_request_param_t {
    /// Bits of ucp_op_attr_t.
    pub op_attr_mask: u32,
    /// Bits that are the operation's own.
    pub flags: u32,
    /// Memory for the request, which the caller provides.
    pub request: *mut ::core::ffi::c_void,
    pub cb: ucp_request_param_t__bindgen_ty_1,
    /// What the buffer contains; bytes, if the field is not set.
    pub datatype: ucp_datatype_t,
    /// The last argument of `cb`.
    pub user_data: *mut ::core::ffi::c_void,
    /// A place for the answer of an atomic operation.
    pub reply_buffer: *mut ::core::ffi::c_void,
    /// The buffer's kind; UCX finds it out, if the field is not set.
    pub memory_type: ucs_memory_type_t,
    pub recv_info: ucp_request_param_t__bindgen_ty_2,
    /// The buffer's registration.
    pub memh: ucp_mem_h,
    /// What the peer's memory contains. Since UCX 1.22.
    pub remote_datatype: ucp_datatype_t,
    /// A description of the peer's memory. Since UCX 1.22.
    pub remote: *const ::core::ffi::c_void,
    /// How many pieces that has. Since UCX 1.22.
    pub remote_count: usize,
}
/// Called when the operation is done, unless that is at once.
#[repr(C)]
#[derive(Copy, Clone)]
pub union ucp_request_param_t__bindgen_ty_1 {
    /// Of sends, flushes and closes.
    pub send: ucp_send_nbx_callback_t,
    /// Of tag receives.
    pub recv: ucp_tag_recv_nbx_callback_t,
    /// Of receives from a stream.
    pub recv_stream: ucp_stream_recv_nbx_callback_t,
    /// Of active messages' data.
    pub recv_am: ucp_am_recv_data_nbx_callback_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ucp_request_param_t__bindgen_ty_1",
    ][::core::mem::size_of::<ucp_request_param_t__bindgen_ty_1>() - 8usize];
    [
        "Alignment of ucp_request_param_t__bindgen_ty_1",
    ][::core::mem::align_of::<ucp_request_param_t__bindgen_ty_1>() - 8usize];
    [
        "Offset of field: ucp_request_param_t__bindgen_ty_1::send",
    ][::core::mem::offset_of!(ucp_request_param_t__bindgen_ty_1, send) - 0usize];
    [
        "Offset of field: ucp_request_param_t__bindgen_ty_1::recv",
    ][::core::mem::offset_of!(ucp_request_param_t__bindgen_ty_1, recv) - 0usize];
    [
        "Offset of field: ucp_request_param_t__bindgen_ty_1::recv_stream",
    ][::core::mem::offset_of!(ucp_request_param_t__bindgen_ty_1, recv_stream) - 0usize];
    [
        "Offset of field: ucp_request_param_t__bindgen_ty_1::recv_am",
    ][::core::mem::offset_of!(ucp_request_param_t__bindgen_ty_1, recv_am) - 0usize];
};
impl Default for ucp_request_param_t__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// Places for what a receive that is done at once got.
#[repr(C)]
#[derive(Copy, Clone)]
pub union ucp_request_param_t__bindgen_ty_2 {
    /// Of receives from a stream.
    pub length: *mut usize,
    /// Of tag receives.
    pub tag_info: *mut ucp_tag_recv_info_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ucp_request_param_t__bindgen_ty_2",
    ][::core::mem::size_of::<ucp_request_param_t__bindgen_ty_2>() - 8usize];
    [
        "Alignment of ucp_request_param_t__bindgen_ty_2",
    ][::core::mem::align_of::<ucp_request_param_t__bindgen_ty_2>() - 8usize];
    [
        "Offset of field: ucp_request_param_t__bindgen_ty_2::length",
    ][::core::mem::offset_of!(ucp_request_param_t__bindgen_ty_2, length) - 0usize];
    [
        "Offset of field: ucp_request_param_t__bindgen_ty_2::tag_info",
    ][::core::mem::offset_of!(ucp_request_param_t__bindgen_ty_2, tag_info) - 0usize];
};
impl Default for ucp_request_param_t__bindgen_ty_2 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ucp_request_param_t",
    ][::core::mem::size_of::<ucp_request_param_t>() - 96usize];
    [
        "Alignment of ucp_request_param_t",
    ][::core::mem::align_of::<ucp_request_param_t>() - 8usize];
    [
        "Offset of field: ucp_request_param_t::op_attr_mask",
    ][::core::mem::offset_of!(ucp_request_param_t, op_attr_mask) - 0usize];
    [
        "Offset of field: ucp_request_param_t::flags",
    ][::core::mem::offset_of!(ucp_request_param_t, flags) - 4usize];
    [
        "Offset of field: ucp_request_param_t::request",
    ][::core::mem::offset_of!(ucp_request_param_t, request) - 8usize];
    [
        "Offset of field: ucp_request_param_t::cb",
    ][::core::mem::offset_of!(ucp_request_param_t, cb) - 16usize];
    [
        "Offset of field: ucp_request_param_t::datatype",
    ][::core::mem::offset_of!(ucp_request_param_t, datatype) - 24usize];
    [
        "Offset of field: ucp_request_param_t::user_data",
    ][::core::mem::offset_of!(ucp_request_param_t, user_data) - 32usize];
    [
        "Offset of field: ucp_request_param_t::reply_buffer",
    ][::core::mem::offset_of!(ucp_request_param_t, reply_buffer) - 40usize];
    [
        "Offset of field: ucp_request_param_t::memory_type",
    ][::core::mem::offset_of!(ucp_request_param_t, memory_type) - 48usize];
    [
        "Offset of field: ucp_request_param_t::recv_info",
    ][::core::mem::offset_of!(ucp_request_param_t, recv_info) - 56usize];
    [
        "Offset of field: ucp_request_param_t::memh",
    ][::core::mem::offset_of!(ucp_request_param_t, memh) - 64usize];
    [
        "Offset of field: ucp_request_param_t::remote_datatype",
    ][::core::mem::offset_of!(ucp_request_param_t, remote_datatype) - 72usize];
    [
        "Offset of field: ucp_request_param_t::remote",
    ][::core::mem::offset_of!(ucp_request_param_t, remote) - 80usize];
    [
        "Offset of field: ucp_request_param_t::remote_count",
    ][::core::mem::offset_of!(ucp_request_param_t, remote_count) - 88usize];
};
impl Default for ucp_request_param_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Mask for ucp_req_attr_field {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_REQUEST_ATTR_FIELD_INFO_STRING",
            Self::UCP_REQUEST_ATTR_FIELD_INFO_STRING.0,
            1110,
        ),
        Bit::new(
            "UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE",
            Self::UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE.0,
            1110,
        ),
        Bit::new(
            "UCP_REQUEST_ATTR_FIELD_STATUS",
            Self::UCP_REQUEST_ATTR_FIELD_STATUS.0,
            1110,
        ),
        Bit::new(
            "UCP_REQUEST_ATTR_FIELD_MEM_TYPE",
            Self::UCP_REQUEST_ATTR_FIELD_MEM_TYPE.0,
            1110,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_req_attr_field {
    /// `debug_string`, which is a place. Since UCX 1.11.
    pub const UCP_REQUEST_ATTR_FIELD_INFO_STRING: ucp_req_attr_field = ucp_req_attr_field(
        1,
    );
    /// `debug_string_size`, which is an argument. Since UCX 1.11.
    pub const UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE: ucp_req_attr_field = ucp_req_attr_field(
        2,
    );
    /// `status`. Since UCX 1.11.
    pub const UCP_REQUEST_ATTR_FIELD_STATUS: ucp_req_attr_field = ucp_req_attr_field(4);
    /// `mem_type`. Since UCX 1.11.
    pub const UCP_REQUEST_ATTR_FIELD_MEM_TYPE: ucp_req_attr_field = ucp_req_attr_field(
        8,
    );
}
impl ::core::ops::BitOr<ucp_req_attr_field> for ucp_req_attr_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_req_attr_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_req_attr_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_req_attr_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_req_attr_field> for ucp_req_attr_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_req_attr_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_req_attr_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_req_attr_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_request_attr_t are asked for.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_req_attr_field(pub ::core::ffi::c_uint);
/// What ucp_request_query gives.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct ucp_request_attr_t {
    /// Bits of ucp_req_attr_field.
    pub field_mask: u64,
    /// A place for a text that describes the operation and the way that it takes.
    pub debug_string: *mut ::core::ffi::c_char,
    /// The size of that place.
    pub debug_string_size: usize,
    /// Its state.
    pub status: ucs_status_t,
    /// The kind of its memory.
    pub mem_type: ucs_memory_type_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ucp_request_attr_t",
    ][::core::mem::size_of::<ucp_request_attr_t>() - 32usize];
    [
        "Alignment of ucp_request_attr_t",
    ][::core::mem::align_of::<ucp_request_attr_t>() - 8usize];
    [
        "Offset of field: ucp_request_attr_t::field_mask",
    ][::core::mem::offset_of!(ucp_request_attr_t, field_mask) - 0usize];
    [
        "Offset of field: ucp_request_attr_t::debug_string",
    ][::core::mem::offset_of!(ucp_request_attr_t, debug_string) - 8usize];
    [
        "Offset of field: ucp_request_attr_t::debug_string_size",
    ][::core::mem::offset_of!(ucp_request_attr_t, debug_string_size) - 16usize];
    [
        "Offset of field: ucp_request_attr_t::status",
    ][::core::mem::offset_of!(ucp_request_attr_t, status) - 24usize];
    [
        "Offset of field: ucp_request_attr_t::mem_type",
    ][::core::mem::offset_of!(ucp_request_attr_t, mem_type) - 28usize];
};
impl Default for ucp_request_attr_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Mask for ucp_am_cb_flags {
    const BITS: &'static [Bit] = &[
        Bit::new("UCP_AM_FLAG_WHOLE_MSG", Self::UCP_AM_FLAG_WHOLE_MSG.0, 1070),
        Bit::new(
            "UCP_AM_FLAG_PERSISTENT_DATA",
            Self::UCP_AM_FLAG_PERSISTENT_DATA.0,
            1110,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_am_cb_flags {
    /// With whole messages only. Since UCX 1.7.
    pub const UCP_AM_FLAG_WHOLE_MSG: ucp_am_cb_flags = ucp_am_cb_flags(1);
    /// With data that it may keep. Since UCX 1.11.
    pub const UCP_AM_FLAG_PERSISTENT_DATA: ucp_am_cb_flags = ucp_am_cb_flags(2);
}
impl ::core::ops::BitOr<ucp_am_cb_flags> for ucp_am_cb_flags {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_am_cb_flags(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_am_cb_flags {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_am_cb_flags) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_am_cb_flags> for ucp_am_cb_flags {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_am_cb_flags(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_am_cb_flags {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_am_cb_flags) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// How a handler is called.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_am_cb_flags(pub ::core::ffi::c_uint);
impl Mask for ucp_send_am_flags {
    const BITS: &'static [Bit] = &[
        Bit::new("UCP_AM_SEND_FLAG_REPLY", Self::UCP_AM_SEND_FLAG_REPLY.0, 1100),
        Bit::new("UCP_AM_SEND_FLAG_EAGER", Self::UCP_AM_SEND_FLAG_EAGER.0, 1100),
        Bit::new("UCP_AM_SEND_FLAG_RNDV", Self::UCP_AM_SEND_FLAG_RNDV.0, 1100),
        Bit::new(
            "UCP_AM_SEND_FLAG_COPY_HEADER",
            Self::UCP_AM_SEND_FLAG_COPY_HEADER.0,
            1140,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_send_am_flags {
    /// With an endpoint for the answer. Since UCX 1.10.
    pub const UCP_AM_SEND_FLAG_REPLY: ucp_send_am_flags = ucp_send_am_flags(1);
    /// With the data at once. Since UCX 1.10.
    pub const UCP_AM_SEND_FLAG_EAGER: ucp_send_am_flags = ucp_send_am_flags(2);
    /// With the data when the peer has a place for it. Since UCX 1.10.
    pub const UCP_AM_SEND_FLAG_RNDV: ucp_send_am_flags = ucp_send_am_flags(4);
    /// With a copy of the header, which need not outlive the call. Since UCX 1.14.
    pub const UCP_AM_SEND_FLAG_COPY_HEADER: ucp_send_am_flags = ucp_send_am_flags(8);
}
impl ::core::ops::BitOr<ucp_send_am_flags> for ucp_send_am_flags {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_send_am_flags(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_send_am_flags {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_send_am_flags) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_send_am_flags> for ucp_send_am_flags {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_send_am_flags(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_send_am_flags {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_send_am_flags) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// How a message is sent: `flags` of ucp_request_param_t.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_send_am_flags(pub ::core::ffi::c_uint);
impl Mask for ucp_am_handler_param_field {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_AM_HANDLER_PARAM_FIELD_ID",
            Self::UCP_AM_HANDLER_PARAM_FIELD_ID.0,
            1100,
        ),
        Bit::new(
            "UCP_AM_HANDLER_PARAM_FIELD_FLAGS",
            Self::UCP_AM_HANDLER_PARAM_FIELD_FLAGS.0,
            1100,
        ),
        Bit::new(
            "UCP_AM_HANDLER_PARAM_FIELD_CB",
            Self::UCP_AM_HANDLER_PARAM_FIELD_CB.0,
            1100,
        ),
        Bit::new(
            "UCP_AM_HANDLER_PARAM_FIELD_ARG",
            Self::UCP_AM_HANDLER_PARAM_FIELD_ARG.0,
            1100,
        ),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_am_handler_param_field {
    /// `id`. Since UCX 1.10.
    pub const UCP_AM_HANDLER_PARAM_FIELD_ID: ucp_am_handler_param_field = ucp_am_handler_param_field(
        1,
    );
    /// `flags`. Since UCX 1.10.
    pub const UCP_AM_HANDLER_PARAM_FIELD_FLAGS: ucp_am_handler_param_field = ucp_am_handler_param_field(
        2,
    );
    /// `cb`. Since UCX 1.10.
    pub const UCP_AM_HANDLER_PARAM_FIELD_CB: ucp_am_handler_param_field = ucp_am_handler_param_field(
        4,
    );
    /// `arg`. Since UCX 1.10.
    pub const UCP_AM_HANDLER_PARAM_FIELD_ARG: ucp_am_handler_param_field = ucp_am_handler_param_field(
        8,
    );
}
impl ::core::ops::BitOr<ucp_am_handler_param_field> for ucp_am_handler_param_field {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_am_handler_param_field(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_am_handler_param_field {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_am_handler_param_field) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_am_handler_param_field> for ucp_am_handler_param_field {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_am_handler_param_field(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_am_handler_param_field {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_am_handler_param_field) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// Which fields of ucp_am_handler_param_t are set.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_am_handler_param_field(pub ::core::ffi::c_uint);
/// Arguments of ucp_worker_set_am_recv_handler.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ucp_am_handler_param {
    /// Bits of ucp_am_handler_param_field.
    pub field_mask: u64,
    /// The number of the messages that it handles.
    pub id: ::core::ffi::c_uint,
    /// Bits of ucp_am_cb_flags.
    pub flags: u32,
    /// The handler.
    pub cb: ucp_am_recv_callback_t,
    /// Its first argument.
    pub arg: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ucp_am_handler_param",
    ][::core::mem::size_of::<ucp_am_handler_param>() - 32usize];
    [
        "Alignment of ucp_am_handler_param",
    ][::core::mem::align_of::<ucp_am_handler_param>() - 8usize];
    [
        "Offset of field: ucp_am_handler_param::field_mask",
    ][::core::mem::offset_of!(ucp_am_handler_param, field_mask) - 0usize];
    [
        "Offset of field: ucp_am_handler_param::id",
    ][::core::mem::offset_of!(ucp_am_handler_param, id) - 8usize];
    [
        "Offset of field: ucp_am_handler_param::flags",
    ][::core::mem::offset_of!(ucp_am_handler_param, flags) - 12usize];
    [
        "Offset of field: ucp_am_handler_param::cb",
    ][::core::mem::offset_of!(ucp_am_handler_param, cb) - 16usize];
    [
        "Offset of field: ucp_am_handler_param::arg",
    ][::core::mem::offset_of!(ucp_am_handler_param, arg) - 24usize];
};
impl Default for ucp_am_handler_param {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// Arguments of ucp_worker_set_am_recv_handler.
pub type ucp_am_handler_param_t = ucp_am_handler_param;
impl Mask for ucp_am_recv_attr_t {
    const BITS: &'static [Bit] = &[
        Bit::new(
            "UCP_AM_RECV_ATTR_FIELD_REPLY_EP",
            Self::UCP_AM_RECV_ATTR_FIELD_REPLY_EP.0,
            1100,
        ),
        Bit::new("UCP_AM_RECV_ATTR_FLAG_DATA", Self::UCP_AM_RECV_ATTR_FLAG_DATA.0, 1100),
        Bit::new("UCP_AM_RECV_ATTR_FLAG_RNDV", Self::UCP_AM_RECV_ATTR_FLAG_RNDV.0, 1100),
    ];
    fn value(self) -> u32 {
        self.0
    }
}
impl ucp_am_recv_attr_t {
    /// `reply_ep` is there. Since UCX 1.10.
    pub const UCP_AM_RECV_ATTR_FIELD_REPLY_EP: ucp_am_recv_attr_t = ucp_am_recv_attr_t(
        1,
    );
    /// The handler may keep the data. Since UCX 1.10.
    pub const UCP_AM_RECV_ATTR_FLAG_DATA: ucp_am_recv_attr_t = ucp_am_recv_attr_t(65536);
    /// The data is with the sender until ucp_am_recv_data_nbx. Since UCX 1.10.
    pub const UCP_AM_RECV_ATTR_FLAG_RNDV: ucp_am_recv_attr_t = ucp_am_recv_attr_t(
        131072,
    );
}
impl ::core::ops::BitOr<ucp_am_recv_attr_t> for ucp_am_recv_attr_t {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        ucp_am_recv_attr_t(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for ucp_am_recv_attr_t {
    #[inline]
    fn bitor_assign(&mut self, rhs: ucp_am_recv_attr_t) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<ucp_am_recv_attr_t> for ucp_am_recv_attr_t {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        ucp_am_recv_attr_t(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for ucp_am_recv_attr_t {
    #[inline]
    fn bitand_assign(&mut self, rhs: ucp_am_recv_attr_t) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
/// What is true of a message that arrived.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ucp_am_recv_attr_t(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct ucp_am_recv_param {
    /// Bits of ucp_am_recv_attr_t.
    pub recv_attr: u64,
    /// Where an answer goes.
    pub reply_ep: ucp_ep_h,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ucp_am_recv_param"][::core::mem::size_of::<ucp_am_recv_param>() - 16usize];
    [
        "Alignment of ucp_am_recv_param",
    ][::core::mem::align_of::<ucp_am_recv_param>() - 8usize];
    [
        "Offset of field: ucp_am_recv_param::recv_attr",
    ][::core::mem::offset_of!(ucp_am_recv_param, recv_attr) - 0usize];
    [
        "Offset of field: ucp_am_recv_param::reply_ep",
    ][::core::mem::offset_of!(ucp_am_recv_param, reply_ep) - 8usize];
};
impl Default for ucp_am_recv_param {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}

function_table! {
    /// Gives the library's release. Since UCX 1.2.
    #[since(1020)]
    fn ucp_get_version(
        major_version: *mut ::core::ffi::c_uint,
        minor_version: *mut ::core::ffi::c_uint,
        release_number: *mut ::core::ffi::c_uint,
    ) -> ();
    /// Gives the library's release as text. Since UCX 1.2.
    #[since(1020)]
    fn ucp_get_version_string() -> *const ::core::ffi::c_char;
    /// Tells how the library was built. Since UCX 1.11.
    #[since(1110)]
    fn ucp_lib_query(attr: *mut ucp_lib_attr_t) -> ucs_status_t;
    /// Gives a text for a status, which is not to be freed. Since UCX 1.2.
    #[since(1020)]
    fn ucs_status_string(status: ucs_status_t) -> *const ::core::ffi::c_char;
    /// Changes a setting of the whole process, for what reads it later. Since UCX 1.2.
    #[since(1020)]
    fn ucs_global_opts_set_value(
        name: *const ::core::ffi::c_char,
        value: *const ::core::ffi::c_char,
    ) -> ucs_status_t;
    /// Reads the settings of contexts from the environment. Since UCX 1.2.
    #[since(1020)]
    fn ucp_config_read(
        env_prefix: *const ::core::ffi::c_char,
        filename: *const ::core::ffi::c_char,
        config_p: *mut *mut ucp_config_t,
    ) -> ucs_status_t;
    /// Changes a setting; `name` has no prefix. Since UCX 1.2.
    #[since(1020)]
    fn ucp_config_modify(
        config: *mut ucp_config_t,
        name: *const ::core::ffi::c_char,
        value: *const ::core::ffi::c_char,
    ) -> ucs_status_t;
    /// Ends settings. Since UCX 1.2.
    #[since(1020)]
    fn ucp_config_release(config: *mut ucp_config_t) -> ();
    /// Makes a context; the first two arguments are the release that the caller is written for. Since UCX 1.2.
    #[since(1020)]
    fn ucp_init_version(
        api_major_version: ::core::ffi::c_uint,
        api_minor_version: ::core::ffi::c_uint,
        params: *const ucp_params_t,
        config: *const ucp_config_t,
        context_p: *mut ucp_context_h,
    ) -> ucs_status_t;
    /// Asks a context. Since UCX 1.2.
    #[since(1020)]
    fn ucp_context_query(
        context_p: ucp_context_h,
        attr: *mut ucp_context_attr_t,
    ) -> ucs_status_t;
    /// Ends a context. Since UCX 1.2.
    #[since(1020)]
    fn ucp_cleanup(context_p: ucp_context_h) -> ();
    /// Makes a worker. Since UCX 1.2.
    #[since(1020)]
    fn ucp_worker_create(
        context: ucp_context_h,
        params: *const ucp_worker_params_t,
        worker_p: *mut ucp_worker_h,
    ) -> ucs_status_t;
    /// Ends a worker and its endpoints. Since UCX 1.2.
    #[since(1020)]
    fn ucp_worker_destroy(worker: ucp_worker_h) -> ();
    /// Asks a worker. Since UCX 1.2.
    #[since(1020)]
    fn ucp_worker_query(
        worker: ucp_worker_h,
        attr: *mut ucp_worker_attr_t,
    ) -> ucs_status_t;
    /// Releases the address that an answer has. Since UCX 1.2.
    #[since(1020)]
    fn ucp_worker_release_address(
        worker: ucp_worker_h,
        address: *mut ucp_address_t,
    ) -> ();
    /// Makes progress, and calls the program's functions; 0 if there was nothing to do. Since UCX 1.2.
    #[since(1020)]
    fn ucp_worker_progress(worker: ucp_worker_h) -> ::core::ffi::c_uint;
    /// Gives the descriptor that an armed worker makes readable. Since UCX 1.2.
    #[since(1020)]
    fn ucp_worker_get_efd(
        worker: ucp_worker_h,
        fd: *mut ::core::ffi::c_int,
    ) -> ucs_status_t;
    /// Lets the next event make the descriptor readable; UCS_ERR_BUSY if there is work already. Since UCX 1.2.
    #[since(1020)]
    fn ucp_worker_arm(worker: ucp_worker_h) -> ucs_status_t;
    /// Makes the descriptor readable. Since UCX 1.2.
    #[since(1020)]
    fn ucp_worker_signal(worker: ucp_worker_h) -> ucs_status_t;
    /// Listens on a socket. Since UCX 1.3.
    #[since(1030)]
    fn ucp_listener_create(
        worker: ucp_worker_h,
        params: *const ucp_listener_params_t,
        listener_p: *mut ucp_listener_h,
    ) -> ucs_status_t;
    /// Ends a listener; its endpoints stay. Since UCX 1.3.
    #[since(1030)]
    fn ucp_listener_destroy(listener: ucp_listener_h) -> ();
    /// Asks a listener. Since UCX 1.7.
    #[since(1070)]
    fn ucp_listener_query(
        listener: ucp_listener_h,
        attr: *mut ucp_listener_attr_t,
    ) -> ucs_status_t;
    /// Refuses a peer. Since UCX 1.5.
    #[since(1050)]
    fn ucp_listener_reject(
        listener: ucp_listener_h,
        conn_request: ucp_conn_request_h,
    ) -> ucs_status_t;
    /// Asks who wants to connect. Since UCX 1.9.
    #[since(1090)]
    fn ucp_conn_request_query(
        conn_request: ucp_conn_request_h,
        attr: *mut ucp_conn_request_attr_t,
    ) -> ucs_status_t;
    /// Connects to a peer, or takes its wish to connect. Since UCX 1.2.
    #[since(1020)]
    fn ucp_ep_create(
        worker: ucp_worker_h,
        params: *const ucp_ep_params_t,
        ep_p: *mut ucp_ep_h,
    ) -> ucs_status_t;
    /// Asks an endpoint. Since UCX 1.11.
    #[since(1110)]
    fn ucp_ep_query(ep: ucp_ep_h, attr: *mut ucp_ep_attr_t) -> ucs_status_t;
    /// Is done when all earlier operations of the endpoint are. Since UCX 1.9.
    #[since(1090)]
    fn ucp_ep_flush_nbx(
        ep: ucp_ep_h,
        param: *const ucp_request_param_t,
    ) -> ucs_status_ptr_t;
    /// Ends an endpoint. Since UCX 1.9.
    #[since(1090)]
    fn ucp_ep_close_nbx(
        ep: ucp_ep_h,
        param: *const ucp_request_param_t,
    ) -> ucs_status_ptr_t;
    /// Sets the handler of the messages with one number. Since UCX 1.10.
    #[since(1100)]
    fn ucp_worker_set_am_recv_handler(
        worker: ucp_worker_h,
        param: *const ucp_am_handler_param_t,
    ) -> ucs_status_t;
    /// Sends a message of header and data. Since UCX 1.10.
    #[since(1100)]
    fn ucp_am_send_nbx(
        ep: ucp_ep_h,
        id: ::core::ffi::c_uint,
        header: *const ::core::ffi::c_void,
        header_length: usize,
        buffer: *const ::core::ffi::c_void,
        count: usize,
        param: *const ucp_request_param_t,
    ) -> ucs_status_ptr_t;
    /// Receives the data of a message that its handler kept. Since UCX 1.10.
    #[since(1100)]
    fn ucp_am_recv_data_nbx(
        worker: ucp_worker_h,
        data_desc: *mut ::core::ffi::c_void,
        buffer: *mut ::core::ffi::c_void,
        count: usize,
        param: *const ucp_request_param_t,
    ) -> ucs_status_ptr_t;
    /// Gives up the data of a message that its handler kept. Since UCX 1.7.
    #[since(1070)]
    fn ucp_am_data_release(worker: ucp_worker_h, data: *mut ::core::ffi::c_void) -> ();
    /// Registers memory. Since UCX 1.2.
    #[since(1020)]
    fn ucp_mem_map(
        context: ucp_context_h,
        params: *const ucp_mem_map_params_t,
        memh_p: *mut ucp_mem_h,
    ) -> ucs_status_t;
    /// Ends a registration. Since UCX 1.2.
    #[since(1020)]
    fn ucp_mem_unmap(context: ucp_context_h, memh: ucp_mem_h) -> ucs_status_t;
    /// Asks a registration. Since UCX 1.2.
    #[since(1020)]
    fn ucp_mem_query(memh: ucp_mem_h, attr: *mut ucp_mem_attr_t) -> ucs_status_t;
    /// Gives the state of a request. Since UCX 1.3.
    #[since(1030)]
    fn ucp_request_check_status(request: *mut ::core::ffi::c_void) -> ucs_status_t;
    /// Describes a request that is not done. Since UCX 1.11.
    #[since(1110)]
    fn ucp_request_query(
        request: *mut ::core::ffi::c_void,
        attr: *mut ucp_request_attr_t,
    ) -> ucs_status_t;
    /// Asks for an early end of a request, which still must be awaited. Since UCX 1.2.
    #[since(1020)]
    fn ucp_request_cancel(worker: ucp_worker_h, request: *mut ::core::ffi::c_void) -> ();
    /// Gives up a request. If it is not done, it goes on. Since UCX 1.2.
    #[since(1020)]
    fn ucp_request_free(request: *mut ::core::ffi::c_void) -> ();
}
