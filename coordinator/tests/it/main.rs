//! Tests of the coordinator: the machine by transcripts and by simulation, the runtime over a store that
//! loses and delays, and both ends of the wire on loopback.

mod transcript;

mod stories;
