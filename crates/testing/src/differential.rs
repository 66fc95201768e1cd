//! The same requests to the embedded API server and to the real one, and every difference between the answers.
//!
//! Nobody can list beforehand where two API servers differ, so a generator makes sequences of requests from a
//! seed, both servers answer them, and what is left after the differences by nature (identities, times,
//! versions) is a mistake of ours. One that is found is shrunk to the few requests that show it, and kept as a
//! file that is replayed ever after.

mod compare;
mod explained;
mod generate;
mod normal;
mod run;
mod sequence;
mod shrink;
mod side;

pub use compare::{Comparison, Difference};
pub use generate::sequence;
pub use run::{Found, Judge, Report, Search};
pub use sequence::{Sequence, Step};
pub use side::{Answer, Side};
