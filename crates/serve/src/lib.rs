//! The server for many machines.
