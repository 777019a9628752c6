//! What comes from other processes and other APIs, and what goes to them: memory, events, semaphores.

mod external;
mod ipc;
mod semaphore;
mod shared_event;

pub(crate) use external::ExternalMemory;
pub(crate) use ipc::{close_memory, export_memory, export_pool_memory, import_pool_memory, open_memory, shared_file};
pub(crate) use semaphore::Semaphore;
pub(crate) use shared_event::SharedEvent;
