//! Machines that run under a real QEMU.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod failures;
mod killed;
mod late;
mod late_libvirt;
mod nights;
mod others;
mod world;
