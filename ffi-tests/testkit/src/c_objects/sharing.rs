//! Objects that go to other processes.

use super::{Channel, Export, FromCall, Result, done, filled, told};
use core::mem::MaybeUninit;
use cudamem::channel::*;
use cudamem::sharing::*;

impl Export {
    /// Creates an export from bytes and files.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn create(bytes: &[u8], files: &[i32]) -> Result<Self> {
        let (place, size) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: the slices have that many bytes and numbers.
        Self::from_call(|made| unsafe { cudamem_export_create(place, size, files.as_ptr(), files.len(), made) })
    }

    /// Returns the numbers of its files.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn files(&self) -> Result<Vec<i32>> {
        let info = self.info()?;
        // SAFETY: the numbers live as long as the export.
        Ok(unsafe { core::slice::from_raw_parts(info.files, info.file_count as usize) }.to_vec())
    }

    /// Returns a copy of its bytes.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let info = self.info()?;
        // SAFETY: the bytes live as long as the export.
        Ok(unsafe { core::slice::from_raw_parts(info.bytes.cast::<u8>(), info.byte_count) }.to_vec())
    }

    /// Returns the library's information about it.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn info(&self) -> Result<cudamem_export_info> {
        // SAFETY: the struct is as large as it says.
        filled(|info| unsafe { cudamem_export_get_info(self.0, info) })
    }
}

impl Channel {
    /// Returns two connected ends.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn pair() -> Result<(Self, Self)> {
        let mut other = MaybeUninit::uninit();
        let one = Self::from_call(|place| cudamem_channel_create_pair(place, Some(&mut other)))?;
        // SAFETY: the call worked and wrote both.
        Ok((one, Self(unsafe { other.assume_init() })))
    }

    /// A channel over a duplicate of a socket.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn open(socket: i32, seconds: f64) -> Result<Self> {
        let channel = Self::from_call(|place| cudamem_channel_open_socket(socket, place))?;
        done(cudamem_channel_set_timeout(channel.0, seconds))?;
        Ok(channel)
    }

    /// Receives an export.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn receive(&self) -> Result<Export> {
        Export::from_call(|place| cudamem_channel_receive(self.0, place))
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn send_bytes(&self, bytes: &[u8]) -> Result {
        // SAFETY: the slice has that many bytes.
        done(unsafe { cudamem_channel_send_bytes(self.0, bytes.as_ptr().cast(), bytes.len()) })
    }

    /// Receives a message.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn receive_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; CUDAMEM_MESSAGE_SIZE];
        let (place, capacity) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: the vector has that many bytes.
        let size = told(|size| unsafe { cudamem_channel_receive_bytes(self.0, place, capacity, size) })?;
        bytes.truncate(size);
        Ok(bytes)
    }
}
