//! Floor 2: places on other machines.
//!
//! Each kind of place is a [`Service`](service::Service): it makes one attempt at a request and says
//! how it failed ([`Failure`](failure::Failure)). [`Remote`](remote::Remote) makes a
//! [`Backend`](strongroom_backend::Backend) of any service: it repeats what may be repeated, reads
//! back what may have been carried out, limits requests and bytes, and ends when the user asks for
//! it. [`Place`] turns what a person wrote into a backend.
//!
//! Everything here is synchronous. Requests that are in flight at the same time are on threads of
//! the caller.

mod address;
mod authority;
mod azure;
mod calls;
pub mod duplex;
mod failure;
mod ftp;
mod http;
mod lanes;
mod own;
mod pages;
mod past;
mod place;
mod rate;
mod remote;
mod s3;
mod secret;
mod service;
mod settings;
mod sftp;
mod shell;
mod stripes;
mod webdav;
pub mod wire;

pub use address::PlaceError;
pub use past::Past;
pub use place::Place;
pub use rate::{Limit, Rate};
pub use settings::{Settings, Variables};
