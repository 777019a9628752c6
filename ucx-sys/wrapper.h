/*
 * ucx-sys: the part of UCX's C interface that an engine of active messages needs, written by hand: UCP (libucp.so.0),
 * and two functions of UCS, on which libucp depends, so that a look-up in libucp finds them.
 *
 * It is for UCX 1.14 and newer. Structures have the shape of UCX 1.22, where new fields come last. "Since UCX x.y." is
 * read by the generator, above a function and above a bit of a mask: it is the release that brought the name. A field
 * that states a release is newer than 1.14.
 *
 * The conformance tests compare everything here with UCX's own headers. UCX_SYS_PROTOTYPES_ONLY leaves the types out, so
 * that the prototypes can be compiled against those.
 */
#ifndef UCX_SYS_WRAPPER_H
#define UCX_SYS_WRAPPER_H

#ifndef UCX_SYS_PROTOTYPES_ONLY

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Results and words ---- */

/** The result of a call, or the state of a request. Codes that are not listed here occur too: those of failed links and
 *  endpoints, between the first and the last of each. */
typedef enum {
    UCS_OK = 0,
    UCS_INPROGRESS = 1,
    UCS_ERR_NO_MESSAGE = -1,
    UCS_ERR_NO_RESOURCE = -2,
    UCS_ERR_IO_ERROR = -3,
    UCS_ERR_NO_MEMORY = -4,
    UCS_ERR_INVALID_PARAM = -5,
    UCS_ERR_UNREACHABLE = -6,
    UCS_ERR_INVALID_ADDR = -7,
    UCS_ERR_NOT_IMPLEMENTED = -8,
    UCS_ERR_MESSAGE_TRUNCATED = -9,
    UCS_ERR_NO_PROGRESS = -10,
    UCS_ERR_BUFFER_TOO_SMALL = -11,
    UCS_ERR_NO_ELEM = -12,
    UCS_ERR_SOME_CONNECTS_FAILED = -13,
    UCS_ERR_NO_DEVICE = -14,
    UCS_ERR_BUSY = -15,
    UCS_ERR_CANCELED = -16,
    UCS_ERR_SHMEM_SEGMENT = -17,
    UCS_ERR_ALREADY_EXISTS = -18,
    UCS_ERR_OUT_OF_RANGE = -19,
    UCS_ERR_TIMED_OUT = -20,
    UCS_ERR_EXCEEDS_LIMIT = -21,
    UCS_ERR_UNSUPPORTED = -22,
    UCS_ERR_REJECTED = -23,
    UCS_ERR_NOT_CONNECTED = -24,
    UCS_ERR_CONNECTION_RESET = -25,
    UCS_ERR_FIRST_LINK_FAILURE = -40,
    UCS_ERR_LAST_LINK_FAILURE = -59,
    UCS_ERR_FIRST_ENDPOINT_FAILURE = -60,
    UCS_ERR_ENDPOINT_TIMEOUT = -80,
    UCS_ERR_LAST_ENDPOINT_FAILURE = -89,
    UCS_ERR_LAST = -100
} __attribute__((packed)) ucs_status_t;

/** What starts an operation returns: null if it is done, a status as an address if it failed, else a request. */
typedef void *ucs_status_ptr_t;

/** What a piece of memory contains. 0 is bytes; a larger element's size stands above the lowest three bits. */
typedef uint64_t ucp_datatype_t;

/** Length of a name of a context, worker or endpoint, with its end. */
#define UCP_ENTITY_NAME_MAX 32

/** The kind of a piece of memory. The numbers of further kinds differ between releases, so leave the field out for
 *  memory of unknown kind. */
typedef enum ucs_memory_type {
    UCS_MEMORY_TYPE_HOST = 0,
    UCS_MEMORY_TYPE_CUDA = 1,
    UCS_MEMORY_TYPE_CUDA_MANAGED = 2
} ucs_memory_type_t;

/** Which threads may call. */
typedef enum {
    /** The thread that made the object. */
    UCS_THREAD_MODE_SINGLE = 0,
    /** Any thread, one at a time. */
    UCS_THREAD_MODE_SERIALIZED = 1,
    /** All threads at once. */
    UCS_THREAD_MODE_MULTI = 2
} ucs_thread_mode_t;

/** How an endpoint treats a peer that is gone. */
typedef enum {
    /** It tells nobody, and requests may stay in progress for ever. */
    UCP_ERR_HANDLING_MODE_NONE = 0,
    /** It fails the requests, and calls the endpoint's error handler. */
    UCP_ERR_HANDLING_MODE_PEER = 1
} ucp_err_handling_mode_t;

/* ---- Handles ---- */

/** An instance of UCP with its memory registrations. */
typedef struct ucp_context *ucp_context_h;
/** Settings, read from the environment and changed by the program. */
typedef struct ucp_config ucp_config_t;
/** What makes progress: the network resources of one thread or of several. */
typedef struct ucp_worker *ucp_worker_h;
/** A socket on which peers connect. */
typedef struct ucp_listener *ucp_listener_h;
/** A peer's wish to connect, to be taken or rejected. */
typedef struct ucp_conn_request *ucp_conn_request_h;
/** A connection to a peer. */
typedef struct ucp_ep *ucp_ep_h;
/** Registered memory. */
typedef struct ucp_mem *ucp_mem_h;
/** A worker's address, as bytes to be sent to a peer. */
typedef struct ucp_address ucp_address_t;
/** What a tag receive got; here only for the request's parameters. */
typedef struct ucp_tag_recv_info ucp_tag_recv_info_t;
/** What an active message's handler learns about the message. */
typedef struct ucp_am_recv_param ucp_am_recv_param_t;

/* ---- Functions of the program ---- */

/** Prepares a request's own bytes. */
typedef void (*ucp_request_init_callback_t)(void *request);
/** Ends a request's own bytes. */
typedef void (*ucp_request_cleanup_callback_t)(void *request);
/** A send is done. */
typedef void (*ucp_send_nbx_callback_t)(void *request, ucs_status_t status, void *user_data);
/** A tag receive is done. */
typedef void (*ucp_tag_recv_nbx_callback_t)(void *request, ucs_status_t status, const ucp_tag_recv_info_t *tag_info,
                                            void *user_data);
/** A receive from a stream is done. */
typedef void (*ucp_stream_recv_nbx_callback_t)(void *request, ucs_status_t status, size_t length, void *user_data);
/** A receive of an active message's data is done. */
typedef void (*ucp_am_recv_data_nbx_callback_t)(void *request, ucs_status_t status, size_t length, void *user_data);
/** An active message arrived. UCS_INPROGRESS keeps its data for later, if the flags allow that. */
typedef ucs_status_t (*ucp_am_recv_callback_t)(void *arg, const void *header, size_t header_length, void *data,
                                               size_t length, const ucp_am_recv_param_t *param);
/** An endpoint failed. It must still be closed. */
typedef void (*ucp_err_handler_cb_t)(void *arg, ucp_ep_h ep, ucs_status_t status);
/** A listener made an endpoint; replaced by ucp_listener_conn_callback_t. */
typedef void (*ucp_listener_accept_callback_t)(ucp_ep_h ep, void *arg);
/** A peer wants to connect. */
typedef void (*ucp_listener_conn_callback_t)(ucp_conn_request_h conn_request, void *arg);

/* ---- The library and the context ---- */

/** Which fields of ucp_lib_attr_t are asked for. */
enum ucp_lib_attr_field {
    /** `max_thread_level`. Since UCX 1.11. */
    UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL = 1 << 0
};

/** How the library was built. */
typedef struct ucp_lib_attr {
    /** Bits of ucp_lib_attr_field. */
    uint64_t field_mask;
    /** The most threads that a context or a worker may serve. */
    ucs_thread_mode_t max_thread_level;
} ucp_lib_attr_t;

/** Which fields of ucp_params_t are set. */
enum ucp_params_field {
    /** `features`. Since UCX 1.2. */
    UCP_PARAM_FIELD_FEATURES = 1 << 0,
    /** `request_size`. Since UCX 1.2. */
    UCP_PARAM_FIELD_REQUEST_SIZE = 1 << 1,
    /** `request_init`. Since UCX 1.2. */
    UCP_PARAM_FIELD_REQUEST_INIT = 1 << 2,
    /** `request_cleanup`. Since UCX 1.2. */
    UCP_PARAM_FIELD_REQUEST_CLEANUP = 1 << 3,
    /** `tag_sender_mask`. Since UCX 1.2. */
    UCP_PARAM_FIELD_TAG_SENDER_MASK = 1 << 4,
    /** `mt_workers_shared`. Since UCX 1.2. */
    UCP_PARAM_FIELD_MT_WORKERS_SHARED = 1 << 5,
    /** `estimated_num_eps`. Since UCX 1.2. */
    UCP_PARAM_FIELD_ESTIMATED_NUM_EPS = 1 << 6,
    /** `estimated_num_ppn`. Since UCX 1.7. */
    UCP_PARAM_FIELD_ESTIMATED_NUM_PPN = 1 << 7,
    /** `name`. Since UCX 1.11. */
    UCP_PARAM_FIELD_NAME = 1 << 8,
    /** `node_local_id`. Since UCX 1.20. */
    UCP_PARAM_FIELD_NODE_LOCAL_ID = 1 << 9
};

/** What a context is used for. */
enum ucp_feature {
    /** Access to a peer's memory. Since UCX 1.2. */
    UCP_FEATURE_RMA = 1 << 1,
    /** Waits on a file descriptor. Since UCX 1.2. */
    UCP_FEATURE_WAKEUP = 1 << 4,
    /** Active messages. Since UCX 1.7. */
    UCP_FEATURE_AM = 1 << 6
};

/** Arguments of ucp_init_version. */
typedef struct ucp_params {
    /** Bits of ucp_params_field. */
    uint64_t field_mask;
    /** Bits of ucp_feature. */
    uint64_t features;
    /** The size of the program's own part of each request. */
    size_t request_size;
    /** Called for a new request. */
    ucp_request_init_callback_t request_init;
    /** Called before a request's memory ends. */
    ucp_request_cleanup_callback_t request_cleanup;
    /** The bits of a tag that name the sender. */
    uint64_t tag_sender_mask;
    /** Not 0: workers of several threads share the context. */
    int mt_workers_shared;
    /** How many endpoints there will be, about. */
    size_t estimated_num_eps;
    /** How many processes there are on this host, about. */
    size_t estimated_num_ppn;
    /** A name for logs. */
    const char *name;
    /** The process's number among those of this host. Since UCX 1.20. */
    size_t node_local_id;
} ucp_params_t;

/** Which fields of ucp_context_attr_t are asked for. */
enum ucp_context_attr_field {
    /** `request_size`. Since UCX 1.2. */
    UCP_ATTR_FIELD_REQUEST_SIZE = 1 << 0,
    /** `thread_mode`. Since UCX 1.2. */
    UCP_ATTR_FIELD_THREAD_MODE = 1 << 1,
    /** `memory_types`. Since UCX 1.10. */
    UCP_ATTR_FIELD_MEMORY_TYPES = 1 << 2,
    /** `name`. Since UCX 1.11. */
    UCP_ATTR_FIELD_NAME = 1 << 3,
    /** `device_counter_size`. Since UCX 1.20. */
    UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE = 1 << 4
};

/** What ucp_context_query gives. */
typedef struct ucp_context_attr {
    /** Bits of ucp_context_attr_field. */
    uint64_t field_mask;
    /** The size of the library's part of a request. */
    size_t request_size;
    /** Which threads may call. */
    ucs_thread_mode_t thread_mode;
    /** The kinds of memory that it knows, one bit for each ucs_memory_type_t. */
    uint64_t memory_types;
    /** Its name. */
    char name[UCP_ENTITY_NAME_MAX];
    /** The size of a counter in device memory. Since UCX 1.20. */
    size_t device_counter_size;
} ucp_context_attr_t;

/* ---- Workers ---- */

/** A set of processors. */
typedef struct {
    /** One bit for each processor. */
    unsigned long ucs_bits[1024 / (8 * sizeof(unsigned long))];
} ucs_cpu_set_t;

/** Which fields of ucp_worker_params_t are set. */
enum ucp_worker_params_field {
    /** `thread_mode`. Since UCX 1.2. */
    UCP_WORKER_PARAM_FIELD_THREAD_MODE = 1 << 0,
    /** `cpu_mask`. Since UCX 1.2. */
    UCP_WORKER_PARAM_FIELD_CPU_MASK = 1 << 1,
    /** `events`. Since UCX 1.2. */
    UCP_WORKER_PARAM_FIELD_EVENTS = 1 << 2,
    /** `user_data`. Since UCX 1.3. */
    UCP_WORKER_PARAM_FIELD_USER_DATA = 1 << 3,
    /** `event_fd`. Since UCX 1.3. */
    UCP_WORKER_PARAM_FIELD_EVENT_FD = 1 << 4,
    /** `flags`. Since UCX 1.11. */
    UCP_WORKER_PARAM_FIELD_FLAGS = 1 << 5,
    /** `name`. Since UCX 1.11. */
    UCP_WORKER_PARAM_FIELD_NAME = 1 << 6,
    /** `am_alignment`. Since UCX 1.12. */
    UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT = 1 << 7,
    /** `client_id`. Since UCX 1.12. */
    UCP_WORKER_PARAM_FIELD_CLIENT_ID = 1 << 8
};

/** Arguments of ucp_worker_create. */
typedef struct ucp_worker_params {
    /** Bits of ucp_worker_params_field. */
    uint64_t field_mask;
    /** Which threads will call. */
    ucs_thread_mode_t thread_mode;
    /** The processors of the threads that will call. */
    ucs_cpu_set_t cpu_mask;
    /** The kinds of events that wake a wait; all, if the field is not set. */
    unsigned events;
    /** A word that events on an external descriptor carry. */
    void *user_data;
    /** An external epoll descriptor, which gets the events. */
    int event_fd;
    /** Bits that change its behaviour. */
    uint64_t flags;
    /** A name for logs. */
    const char *name;
    /** The alignment of the data that an active message's handler gets. */
    size_t am_alignment;
    /** A number that peers learn from a connection request. */
    uint64_t client_id;
} ucp_worker_params_t;

/** Which fields of ucp_worker_attr_t are asked for. */
enum ucp_worker_attr_field {
    /** `thread_mode`. Since UCX 1.2. */
    UCP_WORKER_ATTR_FIELD_THREAD_MODE = 1 << 0,
    /** `address` and `address_length`. Since UCX 1.6. */
    UCP_WORKER_ATTR_FIELD_ADDRESS = 1 << 1,
    /** `address_flags`, which is an argument. Since UCX 1.6. */
    UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS = 1 << 2,
    /** `max_am_header`. Since UCX 1.10. */
    UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER = 1 << 3,
    /** `name`. Since UCX 1.11. */
    UCP_WORKER_ATTR_FIELD_NAME = 1 << 4,
    /** `max_debug_string`. Since UCX 1.11. */
    UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING = 1 << 5
};

/** What ucp_worker_query gives. */
typedef struct ucp_worker_attr {
    /** Bits of ucp_worker_attr_field. */
    uint64_t field_mask;
    /** Which threads may call. */
    ucs_thread_mode_t thread_mode;
    /** Which parts of the address are wanted. */
    uint32_t address_flags;
    /** The worker's address, which the caller must release. */
    ucp_address_t *address;
    /** Its length in bytes. */
    size_t address_length;
    /** The most bytes of an active message's header. */
    size_t max_am_header;
    /** Its name. */
    char name[UCP_ENTITY_NAME_MAX];
    /** The size that the text of ucp_request_query needs at most. */
    size_t max_debug_string;
} ucp_worker_attr_t;

/* ---- Listeners ---- */

/** A socket's address. */
typedef struct ucs_sock_addr {
    /** The address. */
    const struct sockaddr *addr;
    /** Its length. */
    socklen_t addrlen;
} ucs_sock_addr_t;

/** A function for endpoints that a listener makes by itself. */
typedef struct ucp_listener_accept_handler {
    /** The function. */
    ucp_listener_accept_callback_t cb;
    /** Its first argument. */
    void *arg;
} ucp_listener_accept_handler_t;

/** A function for peers that want to connect. */
typedef struct ucp_listener_conn_handler {
    /** The function. */
    ucp_listener_conn_callback_t cb;
    /** Its last argument. */
    void *arg;
} ucp_listener_conn_handler_t;

/** Which fields of ucp_listener_params_t are set. */
enum ucp_listener_params_field {
    /** `sockaddr`. Since UCX 1.3. */
    UCP_LISTENER_PARAM_FIELD_SOCK_ADDR = 1 << 0,
    /** `accept_handler`. Since UCX 1.3. */
    UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER = 1 << 1,
    /** `conn_handler`. Since UCX 1.5. */
    UCP_LISTENER_PARAM_FIELD_CONN_HANDLER = 1 << 2
};

/** Arguments of ucp_listener_create. */
typedef struct ucp_listener_params {
    /** Bits of ucp_listener_params_field. */
    uint64_t field_mask;
    /** Where to listen. */
    ucs_sock_addr_t sockaddr;
    /** For endpoints that it makes by itself. */
    ucp_listener_accept_handler_t accept_handler;
    /** For peers that want to connect. */
    ucp_listener_conn_handler_t conn_handler;
} ucp_listener_params_t;

/** Which fields of ucp_listener_attr_t are asked for. */
enum ucp_listener_attr_field {
    /** `sockaddr`. Since UCX 1.7. */
    UCP_LISTENER_ATTR_FIELD_SOCKADDR = 1 << 0
};

/** What ucp_listener_query gives. */
typedef struct ucp_listener_attr {
    /** Bits of ucp_listener_attr_field. */
    uint64_t field_mask;
    /** Where it listens, with the port that it got. */
    struct sockaddr_storage sockaddr;
} ucp_listener_attr_t;

/** Which fields of ucp_conn_request_attr_t are asked for. */
enum ucp_conn_request_attr_field {
    /** `client_address`. Since UCX 1.9. */
    UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR = 1 << 0,
    /** `client_id`. Since UCX 1.12. */
    UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID = 1 << 1
};

/** What ucp_conn_request_query gives. */
typedef struct ucp_conn_request_attr {
    /** Bits of ucp_conn_request_attr_field. */
    uint64_t field_mask;
    /** Who wants to connect. */
    struct sockaddr_storage client_address;
    /** The number that the peer's worker has, if the peer sends it. */
    uint64_t client_id;
} ucp_conn_request_attr_t;

/* ---- Endpoints ---- */

/** Which fields of ucp_ep_params_t are set. */
enum ucp_ep_params_field {
    /** `address`. Since UCX 1.2. */
    UCP_EP_PARAM_FIELD_REMOTE_ADDRESS = 1 << 0,
    /** `err_mode`. Since UCX 1.2. */
    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE = 1 << 1,
    /** `err_handler`. Since UCX 1.2. */
    UCP_EP_PARAM_FIELD_ERR_HANDLER = 1 << 2,
    /** `user_data`. Since UCX 1.3. */
    UCP_EP_PARAM_FIELD_USER_DATA = 1 << 3,
    /** `sockaddr`. Since UCX 1.3. */
    UCP_EP_PARAM_FIELD_SOCK_ADDR = 1 << 4,
    /** `flags`. Since UCX 1.3. */
    UCP_EP_PARAM_FIELD_FLAGS = 1 << 5,
    /** `conn_request`. Since UCX 1.5. */
    UCP_EP_PARAM_FIELD_CONN_REQUEST = 1 << 6,
    /** `name`. Since UCX 1.11. */
    UCP_EP_PARAM_FIELD_NAME = 1 << 7,
    /** `local_sockaddr`. Since UCX 1.13. */
    UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR = 1 << 8
};

/** How an endpoint is made. */
enum ucp_ep_params_flags_field {
    /** By connecting to the listener at `sockaddr`. Since UCX 1.3. */
    UCP_EP_PARAMS_FLAGS_CLIENT_SERVER = 1 << 0,
    /** Never to the own worker. Since UCX 1.4. */
    UCP_EP_PARAMS_FLAGS_NO_LOOPBACK = 1 << 1,
    /** With the worker's `client_id`. Since UCX 1.12. */
    UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID = 1 << 2
};

/** A function for a failed endpoint. */
typedef struct ucp_err_handler {
    /** The function. */
    ucp_err_handler_cb_t cb;
    /** Its first argument. */
    void *arg;
} ucp_err_handler_t;

/** Arguments of ucp_ep_create. */
typedef struct ucp_ep_params {
    /** Bits of ucp_ep_params_field. */
    uint64_t field_mask;
    /** The peer's worker. */
    const ucp_address_t *address;
    /** How a lost peer shows. */
    ucp_err_handling_mode_t err_mode;
    /** Told of errors. */
    ucp_err_handler_t err_handler;
    /** The endpoint's word: the error handler's first argument, unless that has its own. */
    void *user_data;
    /** Bits of ucp_ep_params_flags_field. */
    unsigned flags;
    /** Where the peer listens. */
    ucs_sock_addr_t sockaddr;
    /** The peer's wish that this endpoint grants. */
    ucp_conn_request_h conn_request;
    /** A name for logs. */
    const char *name;
    /** The own address to connect from. */
    ucs_sock_addr_t local_sockaddr;
} ucp_ep_params_t;

/** How an endpoint is closed: `flags` of ucp_request_param_t. */
typedef enum {
    /** At once, whatever is under way. Since UCX 1.9. */
    UCP_EP_CLOSE_FLAG_FORCE = 1 << 0
} ucp_ep_close_flags_t;

/** One way by which an endpoint reaches its peer. */
typedef struct {
    /** The transport: `tcp`, `cuda_ipc`. */
    const char *transport_name;
    /** The device that carries it: `eth0`. */
    const char *device_name;
} ucp_transport_entry_t;

/** A place for an endpoint's ways, which the caller provides. */
typedef struct {
    /** The entries. */
    ucp_transport_entry_t *entries;
    /** How many there is room for; after the call, how many there are. */
    unsigned num_entries;
    /** The size of one entry. */
    size_t entry_size;
} ucp_transports_t;

/** Which fields of ucp_ep_attr_t are asked for. */
enum ucp_ep_attr_field {
    /** `name`. Since UCX 1.11. */
    UCP_EP_ATTR_FIELD_NAME = 1 << 0,
    /** `local_sockaddr`. Since UCX 1.12. */
    UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR = 1 << 1,
    /** `remote_sockaddr`. Since UCX 1.12. */
    UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR = 1 << 2,
    /** `transports`. Since UCX 1.14. */
    UCP_EP_ATTR_FIELD_TRANSPORTS = 1 << 3,
    /** `user_data`. Since UCX 1.18. */
    UCP_EP_ATTR_FIELD_USER_DATA = 1 << 4
};

/** What ucp_ep_query gives. */
typedef struct ucp_ep_attr {
    /** Bits of ucp_ep_attr_field. */
    uint64_t field_mask;
    /** Its name. */
    char name[UCP_ENTITY_NAME_MAX];
    /** The own address. */
    struct sockaddr_storage local_sockaddr;
    /** The peer's address. */
    struct sockaddr_storage remote_sockaddr;
    /** The ways to the peer; `entries`, `num_entries` and `entry_size` are arguments. */
    ucp_transports_t transports;
    /** The word that the endpoint was made with. Since UCX 1.18. */
    void *user_data;
} ucp_ep_attr_t;

/* ---- Memory ---- */

/** Which fields of ucp_mem_map_params_t are set. */
enum ucp_mem_map_params_field {
    /** `address`. Since UCX 1.2. */
    UCP_MEM_MAP_PARAM_FIELD_ADDRESS = 1 << 0,
    /** `length`. Since UCX 1.2. */
    UCP_MEM_MAP_PARAM_FIELD_LENGTH = 1 << 1,
    /** `flags`. Since UCX 1.2. */
    UCP_MEM_MAP_PARAM_FIELD_FLAGS = 1 << 2,
    /** `prot`. Since UCX 1.10. */
    UCP_MEM_MAP_PARAM_FIELD_PROT = 1 << 3,
    /** `memory_type`. Since UCX 1.10. */
    UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE = 1 << 4,
    /** `exported_memh_buffer`. Since UCX 1.14. */
    UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER = 1 << 5
};

/** How memory is registered. */
enum ucp_mem_map_flags {
    /** Page by page, as it is used. Since UCX 1.2. */
    UCP_MEM_MAP_NONBLOCK = 1 << 0,
    /** Allocated by the call. Since UCX 1.2. */
    UCP_MEM_MAP_ALLOCATE = 1 << 1,
    /** Allocated at `address` exactly. Since UCX 1.2. */
    UCP_MEM_MAP_FIXED = 1 << 2,
    /** With keys that are alike for all peers. Since UCX 1.16. */
    UCP_MEM_MAP_SYMMETRIC_RKEY = 1 << 3,
    /** With its pages locked. Since UCX 1.18. */
    UCP_MEM_MAP_LOCK = 1 << 4
};

/** Who may do what with registered memory. */
enum ucp_mem_map_prot {
    /** This process reads. Since UCX 1.10. */
    UCP_MEM_MAP_PROT_LOCAL_READ = 1 << 0,
    /** This process writes. Since UCX 1.10. */
    UCP_MEM_MAP_PROT_LOCAL_WRITE = 1 << 1,
    /** Peers read. Since UCX 1.10. */
    UCP_MEM_MAP_PROT_REMOTE_READ = 1 << 8,
    /** Peers write. Since UCX 1.10. */
    UCP_MEM_MAP_PROT_REMOTE_WRITE = 1 << 9
};

/** Arguments of ucp_mem_map. */
typedef struct ucp_mem_map_params {
    /** Bits of ucp_mem_map_params_field. */
    uint64_t field_mask;
    /** Where the memory begins. */
    void *address;
    /** Its size in bytes. */
    size_t length;
    /** Bits of ucp_mem_map_flags. */
    unsigned flags;
    /** Bits of ucp_mem_map_prot. */
    unsigned prot;
    /** Its kind. */
    ucs_memory_type_t memory_type;
    /** Another process's registration, to be imported. */
    const void *exported_memh_buffer;
} ucp_mem_map_params_t;

/** Which fields of ucp_mem_attr_t are asked for. */
enum ucp_mem_attr_field {
    /** `address`. Since UCX 1.2. */
    UCP_MEM_ATTR_FIELD_ADDRESS = 1 << 0,
    /** `length`. Since UCX 1.2. */
    UCP_MEM_ATTR_FIELD_LENGTH = 1 << 1,
    /** `mem_type`. Since UCX 1.11. */
    UCP_MEM_ATTR_FIELD_MEM_TYPE = 1 << 2
};

/** What ucp_mem_query gives. */
typedef struct ucp_mem_attr {
    /** Bits of ucp_mem_attr_field. */
    uint64_t field_mask;
    /** Where the memory begins. */
    void *address;
    /** Its size in bytes. */
    size_t length;
    /** Its kind. */
    ucs_memory_type_t mem_type;
} ucp_mem_attr_t;

/* ---- Requests ---- */

/** Which fields of ucp_request_param_t are set, and how the operation behaves. */
typedef enum {
    /** `request`. Since UCX 1.9. */
    UCP_OP_ATTR_FIELD_REQUEST = 1 << 0,
    /** `cb`. Since UCX 1.9. */
    UCP_OP_ATTR_FIELD_CALLBACK = 1 << 1,
    /** `user_data`. Since UCX 1.9. */
    UCP_OP_ATTR_FIELD_USER_DATA = 1 << 2,
    /** `datatype`. Since UCX 1.9. */
    UCP_OP_ATTR_FIELD_DATATYPE = 1 << 3,
    /** `flags`. Since UCX 1.9. */
    UCP_OP_ATTR_FIELD_FLAGS = 1 << 4,
    /** `reply_buffer`. Since UCX 1.9. */
    UCP_OP_ATTR_FIELD_REPLY_BUFFER = 1 << 5,
    /** `memory_type`. Since UCX 1.10. */
    UCP_OP_ATTR_FIELD_MEMORY_TYPE = 1 << 6,
    /** `recv_info`. Since UCX 1.10. */
    UCP_OP_ATTR_FIELD_RECV_INFO = 1 << 7,
    /** `memh`. Since UCX 1.13. */
    UCP_OP_ATTR_FIELD_MEMH = 1 << 8,
    /** `remote_datatype`. Since UCX 1.22. */
    UCP_OP_ATTR_FIELD_REMOTE_DATATYPE = 1 << 9,
    /** `remote`. Since UCX 1.22. */
    UCP_OP_ATTR_FIELD_REMOTE = 1 << 10,
    /** `remote_count`. Since UCX 1.22. */
    UCP_OP_ATTR_FIELD_REMOTE_COUNT = 1 << 11,
    /** Gives a request even if the operation is done at once, and calls `cb`. Since UCX 1.9. */
    UCP_OP_ATTR_FLAG_NO_IMM_CMPL = 1 << 16,
    /** Is done earlier, at the cost of more work. Since UCX 1.9. */
    UCP_OP_ATTR_FLAG_FAST_CMPL = 1 << 17,
    /** Is done at once or fails. Since UCX 1.9. */
    UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL = 1 << 18,
    /** Is one of several in a row, so that their rate counts, not the time of each. Since UCX 1.12. */
    UCP_OP_ATTR_FLAG_MULTI_SEND = 1 << 19
} ucp_op_attr_t;

/** Arguments that all operations have. */
typedef struct {
    /** Bits of ucp_op_attr_t. */
    uint32_t op_attr_mask;
    /** Bits that are the operation's own. */
    uint32_t flags;
    /** Memory for the request, which the caller provides. */
    void *request;
    /** Called when the operation is done, unless that is at once. */
    union {
        /** Of sends, flushes and closes. */
        ucp_send_nbx_callback_t send;
        /** Of tag receives. */
        ucp_tag_recv_nbx_callback_t recv;
        /** Of receives from a stream. */
        ucp_stream_recv_nbx_callback_t recv_stream;
        /** Of active messages' data. */
        ucp_am_recv_data_nbx_callback_t recv_am;
    } cb;
    /** What the buffer contains; bytes, if the field is not set. */
    ucp_datatype_t datatype;
    /** The last argument of `cb`. */
    void *user_data;
    /** A place for the answer of an atomic operation. */
    void *reply_buffer;
    /** The buffer's kind; UCX finds it out, if the field is not set. */
    ucs_memory_type_t memory_type;
    /** Places for what a receive that is done at once got. */
    union {
        /** Of receives from a stream. */
        size_t *length;
        /** Of tag receives. */
        ucp_tag_recv_info_t *tag_info;
    } recv_info;
    /** The buffer's registration. */
    ucp_mem_h memh;
    /** What the peer's memory contains. Since UCX 1.22. */
    ucp_datatype_t remote_datatype;
    /** A description of the peer's memory. Since UCX 1.22. */
    const void *remote;
    /** How many pieces that has. Since UCX 1.22. */
    size_t remote_count;
} ucp_request_param_t;

/** Which fields of ucp_request_attr_t are asked for. */
typedef enum {
    /** `debug_string`, which is a place. Since UCX 1.11. */
    UCP_REQUEST_ATTR_FIELD_INFO_STRING = 1 << 0,
    /** `debug_string_size`, which is an argument. Since UCX 1.11. */
    UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE = 1 << 1,
    /** `status`. Since UCX 1.11. */
    UCP_REQUEST_ATTR_FIELD_STATUS = 1 << 2,
    /** `mem_type`. Since UCX 1.11. */
    UCP_REQUEST_ATTR_FIELD_MEM_TYPE = 1 << 3
} ucp_req_attr_field;

/** What ucp_request_query gives. */
typedef struct {
    /** Bits of ucp_req_attr_field. */
    uint64_t field_mask;
    /** A place for a text that describes the operation and the way that it takes. */
    char *debug_string;
    /** The size of that place. */
    size_t debug_string_size;
    /** Its state. */
    ucs_status_t status;
    /** The kind of its memory. */
    ucs_memory_type_t mem_type;
} ucp_request_attr_t;

/* ---- Active messages ---- */

/** How a handler is called. */
enum ucp_am_cb_flags {
    /** With whole messages only. Since UCX 1.7. */
    UCP_AM_FLAG_WHOLE_MSG = 1 << 0,
    /** With data that it may keep. Since UCX 1.11. */
    UCP_AM_FLAG_PERSISTENT_DATA = 1 << 1
};

/** How a message is sent: `flags` of ucp_request_param_t. */
enum ucp_send_am_flags {
    /** With an endpoint for the answer. Since UCX 1.10. */
    UCP_AM_SEND_FLAG_REPLY = 1 << 0,
    /** With the data at once. Since UCX 1.10. */
    UCP_AM_SEND_FLAG_EAGER = 1 << 1,
    /** With the data when the peer has a place for it. Since UCX 1.10. */
    UCP_AM_SEND_FLAG_RNDV = 1 << 2,
    /** With a copy of the header, which need not outlive the call. Since UCX 1.14. */
    UCP_AM_SEND_FLAG_COPY_HEADER = 1 << 3
};

/** Which fields of ucp_am_handler_param_t are set. */
enum ucp_am_handler_param_field {
    /** `id`. Since UCX 1.10. */
    UCP_AM_HANDLER_PARAM_FIELD_ID = 1 << 0,
    /** `flags`. Since UCX 1.10. */
    UCP_AM_HANDLER_PARAM_FIELD_FLAGS = 1 << 1,
    /** `cb`. Since UCX 1.10. */
    UCP_AM_HANDLER_PARAM_FIELD_CB = 1 << 2,
    /** `arg`. Since UCX 1.10. */
    UCP_AM_HANDLER_PARAM_FIELD_ARG = 1 << 3
};

/** Arguments of ucp_worker_set_am_recv_handler. */
typedef struct ucp_am_handler_param {
    /** Bits of ucp_am_handler_param_field. */
    uint64_t field_mask;
    /** The number of the messages that it handles. */
    unsigned id;
    /** Bits of ucp_am_cb_flags. */
    uint32_t flags;
    /** The handler. */
    ucp_am_recv_callback_t cb;
    /** Its first argument. */
    void *arg;
} ucp_am_handler_param_t;

/** What is true of a message that arrived. */
typedef enum {
    /** `reply_ep` is there. Since UCX 1.10. */
    UCP_AM_RECV_ATTR_FIELD_REPLY_EP = 1 << 0,
    /** The handler may keep the data. Since UCX 1.10. */
    UCP_AM_RECV_ATTR_FLAG_DATA = 1 << 16,
    /** The data is with the sender until ucp_am_recv_data_nbx. Since UCX 1.10. */
    UCP_AM_RECV_ATTR_FLAG_RNDV = 1 << 17
} ucp_am_recv_attr_t;

struct ucp_am_recv_param {
    /** Bits of ucp_am_recv_attr_t. */
    uint64_t recv_attr;
    /** Where an answer goes. */
    ucp_ep_h reply_ep;
};

#endif /* UCX_SYS_PROTOTYPES_ONLY */

/* ---- Functions: the library and its settings ---- */

/** Gives the library's release. Since UCX 1.2. */
void ucp_get_version(unsigned *major_version, unsigned *minor_version, unsigned *release_number);

/** Gives the library's release as text. Since UCX 1.2. */
const char *ucp_get_version_string(void);

/** Tells how the library was built. Since UCX 1.11. */
ucs_status_t ucp_lib_query(ucp_lib_attr_t *attr);

/** Gives a text for a status, which is not to be freed. Since UCX 1.2. */
const char *ucs_status_string(ucs_status_t status);

/** Changes a setting of the whole process, for what reads it later. Since UCX 1.2. */
ucs_status_t ucs_global_opts_set_value(const char *name, const char *value);

/** Reads the settings of contexts from the environment. Since UCX 1.2. */
ucs_status_t ucp_config_read(const char *env_prefix, const char *filename, ucp_config_t **config_p);

/** Changes a setting; `name` has no prefix. Since UCX 1.2. */
ucs_status_t ucp_config_modify(ucp_config_t *config, const char *name, const char *value);

/** Ends settings. Since UCX 1.2. */
void ucp_config_release(ucp_config_t *config);

/* ---- Functions: contexts and workers ---- */

/** Makes a context; the first two arguments are the release that the caller is written for. Since UCX 1.2. */
ucs_status_t ucp_init_version(unsigned api_major_version, unsigned api_minor_version, const ucp_params_t *params,
                              const ucp_config_t *config, ucp_context_h *context_p);

/** Asks a context. Since UCX 1.2. */
ucs_status_t ucp_context_query(ucp_context_h context_p, ucp_context_attr_t *attr);

/** Ends a context. Since UCX 1.2. */
void ucp_cleanup(ucp_context_h context_p);

/** Makes a worker. Since UCX 1.2. */
ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t *params, ucp_worker_h *worker_p);

/** Ends a worker and its endpoints. Since UCX 1.2. */
void ucp_worker_destroy(ucp_worker_h worker);

/** Asks a worker. Since UCX 1.2. */
ucs_status_t ucp_worker_query(ucp_worker_h worker, ucp_worker_attr_t *attr);

/** Releases the address that an answer has. Since UCX 1.2. */
void ucp_worker_release_address(ucp_worker_h worker, ucp_address_t *address);

/** Makes progress, and calls the program's functions; 0 if there was nothing to do. Since UCX 1.2. */
unsigned ucp_worker_progress(ucp_worker_h worker);

/** Gives the descriptor that an armed worker makes readable. Since UCX 1.2. */
ucs_status_t ucp_worker_get_efd(ucp_worker_h worker, int *fd);

/** Lets the next event make the descriptor readable; UCS_ERR_BUSY if there is work already. Since UCX 1.2. */
ucs_status_t ucp_worker_arm(ucp_worker_h worker);

/** Makes the descriptor readable. Since UCX 1.2. */
ucs_status_t ucp_worker_signal(ucp_worker_h worker);

/* ---- Functions: listeners and endpoints ---- */

/** Listens on a socket. Since UCX 1.3. */
ucs_status_t ucp_listener_create(ucp_worker_h worker, const ucp_listener_params_t *params, ucp_listener_h *listener_p);

/** Ends a listener; its endpoints stay. Since UCX 1.3. */
void ucp_listener_destroy(ucp_listener_h listener);

/** Asks a listener. Since UCX 1.7. */
ucs_status_t ucp_listener_query(ucp_listener_h listener, ucp_listener_attr_t *attr);

/** Refuses a peer. Since UCX 1.5. */
ucs_status_t ucp_listener_reject(ucp_listener_h listener, ucp_conn_request_h conn_request);

/** Asks who wants to connect. Since UCX 1.9. */
ucs_status_t ucp_conn_request_query(ucp_conn_request_h conn_request, ucp_conn_request_attr_t *attr);

/** Connects to a peer, or takes its wish to connect. Since UCX 1.2. */
ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *ep_p);

/** Asks an endpoint. Since UCX 1.11. */
ucs_status_t ucp_ep_query(ucp_ep_h ep, ucp_ep_attr_t *attr);

/** Is done when all earlier operations of the endpoint are. Since UCX 1.9. */
ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h ep, const ucp_request_param_t *param);

/** Ends an endpoint. Since UCX 1.9. */
ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t *param);

/* ---- Functions: active messages ---- */

/** Sets the handler of the messages with one number. Since UCX 1.10. */
ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h worker, const ucp_am_handler_param_t *param);

/** Sends a message of header and data. Since UCX 1.10. */
ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header, size_t header_length,
                                 const void *buffer, size_t count, const ucp_request_param_t *param);

/** Receives the data of a message that its handler kept. Since UCX 1.10. */
ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void *data_desc, void *buffer, size_t count,
                                      const ucp_request_param_t *param);

/** Gives up the data of a message that its handler kept. Since UCX 1.7. */
void ucp_am_data_release(ucp_worker_h worker, void *data);

/* ---- Functions: memory and requests ---- */

/** Registers memory. Since UCX 1.2. */
ucs_status_t ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params, ucp_mem_h *memh_p);

/** Ends a registration. Since UCX 1.2. */
ucs_status_t ucp_mem_unmap(ucp_context_h context, ucp_mem_h memh);

/** Asks a registration. Since UCX 1.2. */
ucs_status_t ucp_mem_query(const ucp_mem_h memh, ucp_mem_attr_t *attr);

/** Gives the state of a request. Since UCX 1.3. */
ucs_status_t ucp_request_check_status(void *request);

/** Describes a request that is not done. Since UCX 1.11. */
ucs_status_t ucp_request_query(void *request, ucp_request_attr_t *attr);

/** Asks for an early end of a request, which still must be awaited. Since UCX 1.2. */
void ucp_request_cancel(ucp_worker_h worker, void *request);

/** Gives up a request. If it is not done, it goes on. Since UCX 1.2. */
void ucp_request_free(void *request);

#ifndef UCX_SYS_PROTOTYPES_ONLY
#ifdef __cplusplus
}
#endif
#endif

#endif /* UCX_SYS_WRAPPER_H */
