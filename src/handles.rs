//! Handles
//!
//! A handle is a 64-bit number that names an object of the library. The library checks each handle. A handle that is
//! null, names another kind of object, names a destroyed object, or was never made gives CUDAMEM_ERROR_INVALID_HANDLE,
//! and the call changes nothing. The null handle has zeros in all fields. Destroying it is allowed and does nothing.
//!
//! If a thread destroys an object while another thread uses it, the object ends with that use. The destroying call does
//! not wait.

/// Defines the kinds of handles: the handle's type in C, the kind with its number, and its name in messages.
macro_rules! handles {
    ($($(#[$text:meta])+ $handle:ident: $kind:ident = $number:literal, $name:literal;)*) => {
        /// The kind of object that a handle names. The numbers are part of the interface: programs may print them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$text])+ $kind = $number,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: [Kind; [$($number),*].len()] = [$(Kind::$kind),*];

            /// The kind with a number. The numbers begin at 1, without gaps.
            #[inline]
            pub fn from_number(number: u32) -> Option<Kind> {
                const {
                    let mut index = 0;
                    while index < Kind::ALL.len() {
                        assert!(Kind::ALL[index] as usize == index + 1, "the numbers of the kinds have a gap");
                        index += 1;
                    }
                }
                Kind::ALL.get((number as usize).wrapping_sub(1)).copied()
            }

            /// The kind's name in messages.
            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$kind => $name,)*
                }
            }
        }

        $(
            $(#[$text])+
            #[repr(C)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $handle {
                /// 0 for the null handle.
                pub id: u64,
            }

            impl $handle {
                /// The kind of object that the handle names.
                pub const KIND: Kind = Kind::$kind;
            }
        )*
    };
}
handles! {
    /// A text of the library.
    cudamem_text: Text = 1, "a text";
    /// A CUDA context.
    cudamem_context: Context = 2, "a context";
    /// A stream.
    cudamem_stream: Stream = 3, "a stream";
    /// An event.
    cudamem_event: Event = 4, "an event";
    /// A source of memory.
    cudamem_resource: Resource = 5, "a memory resource";
    /// A buffer: memory from any source.
    cudamem_buffer: Buffer = 6, "a buffer";
    /// A copy engine.
    cudamem_engine: Engine = 7, "a copy engine";
    /// A view: an array of any layout in memory.
    cudamem_view: View = 8, "a view";
    /// The type of an Arrow array.
    cudamem_arrow_schema: ArrowSchema = 9, "an Arrow schema";
    /// An Arrow array.
    cudamem_arrow_array: ArrowArray = 10, "an Arrow array";
    /// A stream of Arrow arrays of one type.
    cudamem_arrow_stream: ArrowStream = 11, "a stream of Arrow arrays";
    /// The memory of signals.
    cudamem_signals: Signals = 12, "the memory of signals";
    /// A flag: a word that CPU, streams and kernels write and wait for.
    cudamem_flag: Flag = 13, "a flag";
    /// A counter: a word that only grows.
    cudamem_counter: Counter = 14, "a counter";
    /// The CPU's end of a ring.
    cudamem_ring: Ring = 15, "a ring";
    /// A pending read of a copy engine.
    cudamem_pending_read: PendingRead = 16, "a pending read";
    /// A graph: recorded work of a stream.
    cudamem_graph: Graph = 17, "a graph";
    /// An executable graph.
    cudamem_executable: Executable = 18, "an executable graph";
    /// Physical memory: bytes without an address.
    cudamem_physical: Physical = 19, "physical memory";
    /// An export, which one process sends to another.
    cudamem_export: Export = 20, "an export";
    /// A channel: a connection to another process.
    cudamem_channel: Channel = 21, "a channel";
    /// A listener, which accepts connections from other processes.
    cudamem_listener: Listener = 22, "a listener";
    /// A ring of frames.
    cudamem_frame_ring: FrameRing = 23, "a ring of frames";
    /// A frame that the CPU fills.
    cudamem_frame: Frame = 24, "a frame";
}
