//! Queued work that waits for words which the CPU may have to write: flags, counters and rings.
//!
//! Reports of waits name these words, and calls that must not wait for such work ask here first. The words belong to rooms
//! above this one, which add them as [`AwaitedWord`]s.

use super::waiting::{SignalTarget, Target, What};
use crate::locks::{Mutex, later};
use core::mem;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The driver's handle of a context, and the context's number.
pub(crate) type ContextName = (usize, Option<u64>);

/// A word, or a ring, that queued work or a thread waits for.
pub(crate) trait AwaitedWord: Send + Sync {
    /// A number that no other word has.
    fn number(&self) -> u64;

    fn context(&self) -> ContextName;

    /// Whether queued work waits for the word now. It may ask the driver.
    fn holds_work(&self) -> bool;

    /// The waits of queued work: the stream's handle, and a text. It does not call the driver, which may not answer the
    /// watchdog. So it may report a wait that the stream has passed, if the word was written again since.
    fn waits(&self) -> Vec<(usize, Box<str>)>;

    /// The wait of a thread, in the numbers of its report.
    fn wait_of_thread(&self, target: SignalTarget) -> Option<Box<str>>;
}

/// The number of waits, and of kernels that may wait, in the logs of all words.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The words that were ever waited for. The end of a word does not take this lock: words also end in forked processes,
/// whose copy of the lock may be held for ever.
static WORDS: Mutex<Vec<Weak<dyn AwaitedWord>>> = Mutex::new(Vec::new());

/// Counts a wait or a kernel while it lives.
pub(crate) struct CountedWait(());

impl CountedWait {
    pub fn new() -> Self {
        COUNT.fetch_add(1, Ordering::Release);
        Self(())
    }
}

impl Drop for CountedWait {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::Release);
    }
}

/// Adds a word before the first wait for it, unless it `is_added`. Whoever sees that mark finds the word in the list.
pub(crate) fn add_once(word: Weak<dyn AwaitedWord>, is_added: &AtomicBool) {
    let mut words = WORDS.lock();
    if is_added.load(Ordering::Relaxed) {
        return;
    }
    if words.len() == words.capacity() {
        words.retain(|word| word.strong_count() != 0);
    }
    words.push(word);
    is_added.store(true, Ordering::Release);
}

/// Words that live. Another thread may end one meanwhile. Then its last reference is here, and its memory, which may be
/// the program's, is freed when this thread holds nothing.
struct Living(Vec<Arc<dyn AwaitedWord>>);

impl Living {
    fn now() -> Self {
        Self(WORDS.lock().iter().filter_map(Weak::upgrade).collect())
    }

    fn of(&self, context: ContextName) -> impl Iterator<Item = &dyn AwaitedWord> {
        self.0.iter().map(Arc::as_ref).filter(move |word| word.context() == context)
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        let words = mem::take(&mut self.0);
        if !words.is_empty() {
            later::run(move || drop(words));
        }
    }
}

/// Whether any queued work of the process waits for a word, or a kernel runs that may wait. One load of a counter.
#[inline]
pub(crate) fn exist() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Whether queued work of the context waits for a word that the CPU may have to write.
pub(crate) fn hold(context: ContextName) -> bool {
    exist() && Living::now().of(context).any(AwaitedWord::holds_work)
}

/// The waits of each stream of a context, as texts.
pub(crate) fn of_streams(context: ContextName) -> Vec<String> {
    let living = Living::now();
    let waits = living.of(context).flat_map(AwaitedWord::waits);
    waits.map(|(raw, text)| format!("stream {raw:#x} waits for {text}")).collect()
}

/// What queued work on the target of a wait waits for, or the state of the word that a thread waits for.
pub(crate) fn behind(target: Target) -> Vec<Box<str>> {
    let stream = match target.what {
        What::Thread | What::Process => return Vec::new(),
        What::Signal => {
            let living = Living::now();
            let word = living.0.iter().find(|word| word.number() == target.signal.number);
            return word.and_then(|word| word.wait_of_thread(target.signal)).into_iter().collect();
        }
        What::Stream => Some(target.stream),
        // The stream of an event is not known.
        What::Context | What::Event => None,
    };
    let mut found = Vec::new();
    if exist() {
        let living = Living::now();
        let waits = living.of(target.context).flat_map(AwaitedWord::waits);
        for (_, text) in waits.filter(|(raw, _)| stream.is_none_or(|only| only == *raw)) {
            if !found.contains(&text) {
                found.push(text);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::{Held, Kind, check_nothing_held};

    const HERE: ContextName = (usize::MAX, Some(u64::MAX));

    /// A word that another thread ends while somebody asks it.
    struct Ending {
        last: Mutex<Option<Arc<Self>>>,
        has_ended: Arc<AtomicBool>,
    }

    impl AwaitedWord for Ending {
        fn number(&self) -> u64 {
            u64::MAX
        }

        fn context(&self) -> ContextName {
            HERE
        }

        fn holds_work(&self) -> bool {
            let last = self.last.lock().take();
            drop(last);
            false
        }

        fn waits(&self) -> Vec<(usize, Box<str>)> {
            Vec::new()
        }

        fn wait_of_thread(&self, _target: SignalTarget) -> Option<Box<str>> {
            None
        }
    }

    impl Drop for Ending {
        fn drop(&mut self) {
            // It frees memory, perhaps by code of the program.
            check_nothing_held();
            self.has_ended.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_word_that_ends_while_it_is_asked_ends_without_a_gate() {
        let (has_ended, is_added) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
        let word = Arc::new(Ending { last: Mutex::new(None), has_ended: has_ended.clone() });
        let listed: Arc<dyn AwaitedWord> = word.clone();
        add_once(Arc::downgrade(&listed), &is_added);
        drop(listed);
        let inner = word.clone();
        *inner.last.lock() = Some(word);
        drop(inner);
        let (_counted, gate) = (CountedWait::new(), Held::new(Kind::Gate));
        assert!(!hold(HERE) && !has_ended.load(Ordering::Relaxed));
        drop(gate);
        assert!(has_ended.load(Ordering::Relaxed));
    }
}
