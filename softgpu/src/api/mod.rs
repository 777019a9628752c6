//! The C functions of the CUDA driver. They check arguments and call `state`.

pub(crate) mod batch;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod external;
pub(crate) mod fill;
pub(crate) mod graph;
pub(crate) mod graph_edges;
pub(crate) mod graph_nodes;
pub(crate) mod graph_params;
pub(crate) mod host;
pub(crate) mod init;
pub(crate) mod ipc;
pub(crate) mod kernel;
pub(crate) mod managed;
pub(crate) mod memory;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod profiler;
pub(crate) mod semaphore;
pub(crate) mod stream;
pub(crate) mod user_object;
pub(crate) mod virtual_memory;
