// UCX, of which a test lets one call fail. The library stands in front of UCX's own.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <ucp/api/ucp.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *function = "";
static unsigned left = 0;

// Lets the call of this number of a function fail, from 1 on. Returns how many calls were left before that of the last time.
unsigned fail_call(const char *name, unsigned number)
{
    pthread_mutex_lock(&lock);
    unsigned before = left;
    function = name;
    left = number;
    pthread_mutex_unlock(&lock);
    return before;
}

static int fails(const char *name)
{
    pthread_mutex_lock(&lock);
    int now = left > 0 && strcmp(name, function) == 0 && --left == 0;
    pthread_mutex_unlock(&lock);
    return now;
}

// POSIX lets dlsym return a function.
#define CALL(result, name, parameters, arguments) (__extension__(result(*) parameters) dlsym(RTLD_NEXT, #name)) arguments
#define FAILING(name, parameters, arguments) \
    ucs_status_t name parameters { return fails(#name) ? UCS_ERR_NO_MEMORY : CALL(ucs_status_t, name, parameters, arguments); }

FAILING(ucp_config_read, (const char *prefix, const char *file, ucp_config_t **config), (prefix, file, config))
FAILING(ucp_config_modify, (ucp_config_t *config, const char *name, const char *value), (config, name, value))
FAILING(ucp_init_version,
    (unsigned major, unsigned minor, const ucp_params_t *params, const ucp_config_t *config, ucp_context_h *context),
    (major, minor, params, config, context))
FAILING(ucp_worker_create, (ucp_context_h context, const ucp_worker_params_t *params, ucp_worker_h *worker),
    (context, params, worker))
FAILING(ucp_worker_get_efd, (ucp_worker_h worker, int *fd), (worker, fd))
FAILING(ucp_worker_arm, (ucp_worker_h worker), (worker))
FAILING(ucp_worker_set_am_recv_handler, (ucp_worker_h worker, const ucp_am_handler_param_t *handler), (worker, handler))
FAILING(ucp_listener_create, (ucp_worker_h worker, const ucp_listener_params_t *params, ucp_listener_h *listener),
    (worker, params, listener))
FAILING(ucp_listener_query, (ucp_listener_h listener, ucp_listener_attr_t *about), (listener, about))
FAILING(ucp_conn_request_query, (ucp_conn_request_h request, ucp_conn_request_attr_t *about), (request, about))

// Where UCX itself fails to accept a connection, it takes the request, which this cannot.
ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *endpoint)
{
    if (!(params->field_mask & UCP_EP_PARAM_FIELD_CONN_REQUEST) && fails("ucp_ep_create"))
        return UCS_ERR_NO_MEMORY;
    return CALL(ucs_status_t, ucp_ep_create, (ucp_worker_h, const ucp_ep_params_t *, ucp_ep_h *), (worker, params, endpoint));
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h endpoint, unsigned id, const void *header, size_t header_size, const void *bytes,
    size_t count, const ucp_request_param_t *params)
{
    if (fails("ucp_am_send_nbx"))
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    return CALL(ucs_status_ptr_t, ucp_am_send_nbx,
        (ucp_ep_h, unsigned, const void *, size_t, const void *, size_t, const ucp_request_param_t *),
        (endpoint, id, header, header_size, bytes, count, params));
}
