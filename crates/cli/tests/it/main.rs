//! The program as people and scripts meet it: the built binary, its exit codes and its words.

mod crash;
mod damage;
mod help;
mod interrupt;
mod machine;
mod mistakes;
mod mount;
mod space;
mod story;
mod unchanged;
mod views;
mod world;
