//! The program as people and scripts meet it: the built binary, its exit codes and its words.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod book;
mod crash;
mod damage;
mod drill;
mod drill_bad_days;
mod findings;
mod fingers;
mod forget;
mod guest_trees;
mod guests;
mod help;
mod holds;
mod images;
mod imports;
mod imports_bad_days;
mod interrupt;
mod json;
mod libvirt;
mod listings;
mod look;
mod machine;
mod mistakes;
mod mount;
mod nights;
mod nights_as_disks;
mod old_repositories;
mod output;
mod packages;
mod pager;
mod places;
mod profiles;
mod prompt;
mod ram;
mod replicas;
mod resumes;
mod runs;
mod second_reader;
mod shares;
mod space;
mod story;
mod tty;
mod unchanged;
mod views;
mod world;
