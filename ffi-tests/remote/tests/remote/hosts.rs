//! Two programs that are connected, in this process.

use cuda_mem::memory::ResourceHandle;
use cuda_mem::{Buffer, Context, SharedBuffer, Stream};
use cuda_mem_remote::{Engine, Key, Listener, Peer, Remote, RemoteOptions};
use std::time::Duration;
use testkit::suite::Outcome;

/// A connection and both its sides.
pub struct Hosts {
    pub here: Remote,
    pub there: Remote,
    pub listener: Listener,
    /// `here`'s side of the connection.
    pub peer: Peer,
    /// `there`'s side.
    pub other: Peer,
}

/// Whether the tests run over UCX: REMOTE_ENGINE=ucx.
pub fn is_ucx() -> bool {
    std::env::var("REMOTE_ENGINE").is_ok_and(|engine| engine == "ucx")
}

/// Short time limits, so that tests of them are short.
pub fn options() -> RemoteOptions {
    let mut options = RemoteOptions::default();
    (options.deadline, options.silence) = (Duration::from_secs(2), Duration::from_secs(3));
    options.staging = 12 * RemoteOptions::SLOT;
    if is_ucx() {
        let interface = std::env::var("REMOTE_INTERFACE").unwrap_or_else(|_| "lo".to_owned());
        options.engine = Engine::UcxTrustedNetwork { interface };
    }
    options
}

/// Where to listen: REMOTE_ADDRESS, or any port of the loopback.
pub fn address() -> String {
    std::env::var("REMOTE_ADDRESS").unwrap_or_else(|_| "127.0.0.1:0".to_owned())
}

impl Hosts {
    pub fn new(context: &Context) -> Result<Self, cuda_mem_remote::Error> {
        Self::with_options(context, &options())
    }

    pub fn with_options(context: &Context, options: &RemoteOptions) -> Result<Self, cuda_mem_remote::Error> {
        let key = Key::generate()?;
        let (here, there) = (Remote::new(context, &key, options)?, Remote::new(context, &key, options)?);
        let listener = there.listen("127.0.0.1:0")?;
        let peer = here.connect(listener.address())?;
        let other = listener.accept()?;
        Ok(Self { here, there, listener, peer, other })
    }

    pub fn close(self) -> Outcome {
        self.peer.close()?;
        self.other.close()?;
        Ok(())
    }
}

/// Shared memory of these bytes, on a stream of its own.
pub fn shared<R: ResourceHandle + ?Sized>(
    memory: &R,
    bytes: &[u8],
) -> Result<SharedBuffer<u8, R::Kind>, cuda_mem::Error> {
    let stream = Stream::new(memory.share().context())?;
    Ok(Buffer::from_slice(memory, bytes, &stream)?.into_shared())
}

/// Asks until the answer is yes, for at most 20 s.
pub fn eventually(what: &str, mut ask: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + testkit::LIMIT;
    while !ask() {
        assert!(std::time::Instant::now() < until, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
