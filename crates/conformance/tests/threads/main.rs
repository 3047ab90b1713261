//! Parties on several threads. A binary of its own: the tests of a process share its threads, and others would take twice as long.

mod parallel;
mod random_networks;
mod same_messages;
mod sums;
