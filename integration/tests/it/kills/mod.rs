//! Real processes, killed with SIGKILL at every step of an epoch, a commit, a fill and DDL, under load.
//!
//! Writers and makers of views count what was acknowledged. After each kill and restart, before anything is
//! made anew: every acknowledged transaction is there once (an unacknowledged one may be there once or not
//! at all: unknown is not absent), every acknowledged view is there and none that was dropped, all verify,
//! and fresh answers equal live ones. Coordinator and server are killed apart, and a coordinator that was
//! stopped while another took over changes nothing when it goes on. The same with refreshes, upkeep and
//! readers instead of makers of views, and over a cluster, where another process takes over the jobs.

mod cluster;
mod fills;
mod helpers;
mod keepers;
mod load;
mod moments;
mod processes;
mod readers;
mod steps;
mod upkeep;
mod zombies;
