//! A relay between two programs, which changes, repeats or leaves out bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

/// What the relay does with the bytes of the side that has connected. At first it carries them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
pub enum Mischief {
    /// It changes one bit.
    Change = 1,
    /// It sends a piece twice.
    Repeat,
    /// It leaves a piece out.
    LeaveOut,
}

pub struct Relay {
    pub address: SocketAddr,
    mischief: Arc<AtomicU8>,
}

impl Relay {
    /// A relay to an address, for one connection.
    pub fn to(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let relay = Self { address: listener.local_addr()?, mischief: Arc::default() };
        let mischief = relay.mischief.clone();
        thread::spawn(move || -> std::io::Result<()> {
            let (near, _) = listener.accept()?;
            let far = TcpStream::connect(address)?;
            let (back, both) = ((far.try_clone()?, near.try_clone()?), mischief.clone());
            thread::spawn(move || carry(back.0, back.1, &both, false));
            carry(near, far, &mischief, true)
        });
        Ok(relay)
    }

    pub fn set(&self, mischief: Mischief) {
        self.mischief.store(mischief as u8, Ordering::SeqCst);
    }
}

/// Carries bytes until one side ends, which ends the other.
fn carry(mut from: TcpStream, mut to: TcpStream, mischief: &AtomicU8, does_mischief: bool) -> std::io::Result<()> {
    let mut bytes = [0; 5000];
    loop {
        let size = from.read(&mut bytes)?;
        if size == 0 {
            return to.shutdown(std::net::Shutdown::Both);
        }
        let mischief = mischief.load(Ordering::SeqCst);
        if does_mischief && mischief == Mischief::Change as u8 {
            bytes[size / 2] ^= 4;
        }
        if !does_mischief || mischief != Mischief::LeaveOut as u8 {
            to.write_all(&bytes[..size])?;
        }
        if does_mischief && mischief == Mischief::Repeat as u8 {
            to.write_all(&bytes[..size])?;
        }
    }
}
