//! Transfers that own or borrow host memory.

use cuda_mem::memory::PinnedMemory;
use cuda_mem::{Buffer, Error, HostBuffer, Result};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::{Bench, pattern};

#[test]
fn uploads_and_downloads_own_host_memory_until_completion() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let length = 3 << 20;
    let bytes = pattern(length, 4);
    let mut buffer = Buffer::<u8, _>::zeroed(&pool, length + 5, &stream)?;
    let upload = buffer.upload(5, bytes.clone())?;
    let download = buffer.download(0, vec![1; length + 5])?;
    assert_eq!(upload.wait()?, bytes);
    assert_eq!(download.wait()?[5..], bytes);
    let shared: Arc<[u8]> = bytes.into();
    drop(buffer.upload(0, shared.clone())?); // waits
    assert_eq!(Arc::strong_count(&shared), 1);
    static WORDS: [u8; 2] = [8, 9];
    buffer.upload(0, &WORDS[..])?.wait()?;
    drop(buffer.download(0, vec![0; 2].into_boxed_slice())?);
    buffer.download(length + 5, Vec::new())?.wait()?;
    let refused = buffer.upload(length + 4, vec![1; 2]).unwrap_err();
    assert_eq!(refused.value, [1; 2], "the host memory comes back");
    assert!(buffer.download(1, vec![0; length + 5]).is_err());
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

/// Runs a future to its end on this thread, which sleeps until it is woken.
fn block_on<F: Future>(future: F) -> (F::Output, usize) {
    struct Unpark(std::thread::Thread, AtomicUsize);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.unpark();
        }
    }
    let unpark = Arc::new(Unpark(std::thread::current(), AtomicUsize::new(0)));
    let waker = unpark.clone().into();
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            return (output, unpark.1.load(Ordering::Relaxed));
        }
        std::thread::park();
    }
}

#[test]
fn transfers_can_be_awaited() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let mut buffer = Buffer::<u8, _>::zeroed(&pool, 1000, &stream)?;
    // The stream is delayed, so that the first poll finds the copy pending.
    let (hold, held) = std::sync::mpsc::channel::<()>();
    stream.launch_host_function(move || {
        let _ = held.recv();
    })?;
    let pinned = PinnedMemory::new(&context);
    let upload = buffer.upload(0, HostBuffer::from_slice(&pinned, &pattern(1000, 1))?)?;
    let download = buffer.download(0, HostBuffer::zeroed(&pinned, 1000)?)?;
    let release = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(hold);
    });
    let (outcome, wakes) = block_on(async { Ok::<_, Error>((upload.await?, download.await?)) });
    let (sent, received) = outcome?;
    assert_eq!(*sent, *received);
    assert!(wakes >= 1, "the driver's callback has woken the task");
    release.join().expect("the holder ends");
    Ok(())
}
