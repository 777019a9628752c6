//! The kinds of work.

mod adaptors;
mod aligned;
mod arrays;
mod buffers;
mod captures;
mod engine;
mod foreign_graphs;
mod forgotten;
mod graphs;
mod growing;
mod host;
mod io;
mod lifetimes;
mod mapped;
mod owners;
mod panicking;
mod peers;
mod pools;
mod processes;
mod sharing;
mod signals;
mod transfers;
mod views;

pub use forgotten::in_a_process as forget_in_a_process;

use super::Work;

/// All kinds, with how often each is done relative to the others.
pub const WORK: [Work; 31] = [
    Work { name: "buffers", weight: 120, step: buffers::step },
    Work { name: "transfers", weight: 40, step: transfers::step },
    Work { name: "engine", weight: 40, step: engine::step },
    Work { name: "pools", weight: 20, step: pools::step },
    Work { name: "pools in place", weight: 3, step: pools::in_place },
    Work { name: "rings", weight: 10, step: pools::rings },
    Work { name: "adaptors", weight: 10, step: adaptors::step },
    Work { name: "mapped", weight: 30, step: mapped::step },
    Work { name: "registered", weight: 10, step: host::registered },
    Work { name: "host buffers", weight: 10, step: host::buffers },
    Work { name: "managed", weight: 10, step: host::managed },
    Work { name: "growing", weight: 2, step: growing::step },
    Work { name: "views", weight: 30, step: views::step },
    Work { name: "arrays", weight: 20, step: arrays::step },
    Work { name: "io", weight: 15, step: io::step },
    Work { name: "signals", weight: 4, step: signals::step },
    Work { name: "graphs", weight: 10, step: graphs::step },
    Work { name: "graphs of others", weight: 10, step: foreign_graphs::step },
    Work { name: "sharing", weight: 10, step: sharing::step },
    Work { name: "processes", weight: 1, step: processes::step },
    Work { name: "captures", weight: 10, step: captures::step },
    Work { name: "joins", weight: 10, step: captures::joins },
    Work { name: "former owners", weight: 20, step: owners::step },
    Work { name: "foreign joins", weight: 10, step: owners::foreign_joins },
    Work { name: "made beside captures", weight: 5, step: owners::made_beside_captures },
    Work { name: "forgotten", weight: 10, step: forgotten::step },
    Work { name: "peers", weight: 5, step: peers::step },
    Work { name: "peers in processes", weight: 1, step: peers::exported },
    Work { name: "panics", weight: 5, step: panicking::step },
    Work { name: "aligned", weight: 10, step: aligned::step },
    Work { name: "lifetimes", weight: 10, step: lifetimes::step },
];

/// The names of all kinds.
pub fn names() -> Vec<&'static str> {
    WORK.iter().map(|work| work.name).collect()
}
