//! Calls of flags, counters and rings. No stream waits for a value that may never come.

use super::Calls;
use core::ptr;
use cudamem::counter::*;
use cudamem::handles::*;
use cudamem::objects::*;
use cudamem::ring::*;
use cudamem::signal::*;
use cudamem::word::*;

impl Calls<'_> {
    pub(super) fn signals(&mut self) {
        let (context, resource, signals) = (self.context(), self.resource(), self.signal_memory());
        let (flag, counter, ring, stream) = (self.flag(), self.counter(), self.ring(), self.stream());
        let (bits, place) = (if self.byte() < 100 { 32 } else { 64 }, i32::from(self.byte() % 5));
        let (value, small) = (self.number(), u64::from(self.byte() % 8));
        let options = self.wait();
        let text = |id| cudamem_text { id };
        let over = cudamem_signals_options {
            size: size_of::<cudamem_signals_options>(),
            mapped: resource,
            flags: 0,
            reserved: 0,
        };
        let none = cudamem_resource { id: 0 };
        let pinned = cudamem_signals_options { mapped: none, flags: small as u32 % 3, ..over };
        let word = if self.byte() < 128 { flag.id } else { counter.id };
        match self.byte() % 24 {
            0 => self.make(
                |id| cudamem_signals { id },
                |made| made.id,
                // SAFETY: the options are as large as they say.
                |made| unsafe { cudamem_signals_create(context, &pinned, made) },
            ),
            1 => self.make(
                |id| cudamem_signals { id },
                |made| made.id,
                // SAFETY: as above.
                |made| unsafe { cudamem_signals_create(context, &over, made) },
            ),
            2 => self.make(text, |made| made.id, |made| cudamem_signals_get_missing(signals, made)),
            3..6 => self.make(
                |id| cudamem_flag { id },
                |made| made.id,
                |made| cudamem_flag_create(signals, bits, place, made),
            ),
            6 => self.make(
                |id| cudamem_counter { id },
                |made| made.id,
                |made| cudamem_counter_create(signals, bits, place % 3, made),
            ),
            7..10 => self.make_ring(signals),
            10 => self.tell(|out| cudamem_signal_load(word, out)),
            // SAFETY: the options are as large as they say.
            11 => self.tell(|out| unsafe { cudamem_signal_wait(flag.id, place, value, &options, out) }),
            // SAFETY: the struct is as large as it says.
            12 => self.fill(|info| unsafe { cudamem_signal_get_info(word, info) }),
            13 => self.tell(|out| cudamem_counter_add(counter, small, out)),
            // SAFETY: as above.
            14 => self.tell(|out| unsafe { cudamem_signal_wait(counter.id, place % 2, small, &options, out) }),
            // SAFETY: as above.
            15 => self.fill(|info| unsafe { cudamem_ring_get_info(ring, info) }),
            16 => self.tell(|out| cudamem_ring_get_available(ring, out)),
            17..22 => self.use_ring(ring),
            _ => {
                let status = match self.byte() % 12 {
                    0 => cudamem_flag_store(flag, value),
                    1 => cudamem_signal_store_on(flag.id, stream, value),
                    // No word has any of the bits of 0, so the call must refuse this.
                    2 => cudamem_signal_wait_on(flag.id, stream, CUDAMEM_COMPARE_ANY_BIT, 0),
                    // A count is never below 0, so this wait passes at once.
                    3 => cudamem_signal_wait_on(counter.id, stream, CUDAMEM_COMPARE_AT_LEAST, 0),
                    4 => cudamem_signal_store_on(counter.id, stream, small),
                    5 => cudamem_ring_close(ring),
                    6 | 7 => cudamem_record_use(word, stream),
                    8 => cudamem_record_use(ring.id, stream),
                    // SAFETY: the name is a text.
                    choice => unsafe { cudamem_set_name([word, ring.id][usize::from(choice % 2)], c"a name".as_ptr()) },
                };
                self.count(status);
            }
        }
    }

    /// Options of a wait that ends soon.
    pub(super) fn wait(&mut self) -> cudamem_wait_options {
        cudamem_wait_options {
            size: size_of::<cudamem_wait_options>() - usize::from(self.byte() == 0),
            timeout: 1e-6,
            shortest_nap: 1e-6,
            longest_nap: f64::from(self.byte()) * 1e-8,
            spins: -1,
            yields: i32::from(self.byte() % 4) - 2,
        }
    }

    fn make_ring(&mut self, signals: cudamem_signals) {
        let huge = self.byte() < 8;
        let items = if huge { usize::MAX } else { usize::from(self.byte()) };
        let item_size = usize::from(self.byte() % 100);
        let options = cudamem_ring_options {
            size: size_of::<cudamem_ring_options>(),
            direction: i32::from(self.byte() % 9 / 4),
            choose_places: i32::from(self.byte() % 2),
            consumer_place: i32::from(self.byte() % 5),
            producer_place: i32::from(self.byte() % 5),
        };
        let options = if self.byte() < 100 { ptr::null() } else { &raw const options };
        // SAFETY: the options are as large as they say.
        self.make(
            |id| cudamem_ring { id },
            |made| made.id,
            |made| unsafe { cudamem_ring_create(signals, items, item_size, options, made) },
        );
    }

    fn use_ring(&mut self, ring: cudamem_ring) {
        // No ring has items of more than 100 bytes.
        let count = usize::from(self.byte() % 128);
        let size = if self.byte() == 0 { usize::MAX } else { count * 100 };
        let items = self.room(size);
        let options = self.wait();
        // SAFETY: the room has that many items or is NULL, and the options are as large as they say.
        self.tell(|out| unsafe {
            match options.yields {
                -2 => cudamem_ring_push(ring, items, count, ptr::null(), out),
                -1 => cudamem_ring_push(ring, items, count, &options, out),
                0 => cudamem_ring_pop(ring, items, count, ptr::null(), out),
                _ => cudamem_ring_pop(ring, items, count, &options, out),
            }
        });
    }
}
