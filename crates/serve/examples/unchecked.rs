//! `strongroom serve --stdio` without the checks of objects, for tests of the protocol: it takes any
//! bytes. Its argument is the folder.

use std::io;
use std::path::Path;
use std::sync::Arc;

use strongroom_backend::BackendError;
use strongroom_serve::{Checks, Door, Entrance, Limits, Role, Room, Visitor, attend};

struct Open(Entrance);

impl Door for Open {
    fn enter(&self, _token: &str, _room: &str) -> Result<Entrance, BackendError> {
        Ok(self.0.clone())
    }
}

#[expect(clippy::disallowed_methods, reason = "a program for tests has arguments")]
fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).expect("the folder");
    let room = Arc::new(Room::new("-", Path::new(&folder), Checks::Nothing, None));
    let visitor = Visitor { name: "test".to_owned(), role: Role::Admin, quota: None };
    let door = Open(Entrance { room, visitor });
    // The standard library's own buffer looks for ends of lines; frames are flushed one by one.
    attend(&mut io::stdin(), &mut io::stdout(), &door, &Limits::default(), |_| ())
}
