//! Buffers of every resource: what they hold, where their work is ordered, and how they end. Runs on any driver.

use cuda_mem::memory::{DeviceMemory, DevicePool, PoolOptions};
use cuda_mem::{Buffer, Stream};

#[test]
fn smoke() {
    let setup = ffi_tests::Setup::from_environment().unwrap();
    let context = setup.context;
    let stream = Stream::new(&context).unwrap();
    let pool = DevicePool::new(&context, &PoolOptions::default()).unwrap();
    let memory = DeviceMemory::new(&context);
    let mut a = Buffer::from_slice(&pool, &[1u64, 2, 3, 4], &stream).unwrap();
    let b = Buffer::filled(&memory, 10, 0x1122_3344_5566_7788u64, &stream).unwrap();
    a.copy_from_buffer(1, &b, 3..5).unwrap();
    assert_eq!(a.to_vec().unwrap(), [1, 0x1122_3344_5566_7788, 0x1122_3344_5566_7788, 4]);
    a.close().unwrap();
    drop(b);
    assert!(context.take_drop_errors().errors.is_empty());
}
