//! Offers a raw image over a Unix socket until its standard input ends, for measurements:
//! `serve_file IMAGE SOCKET [OVERLAY]`.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use strongroom_nbd::{Export, Exports, FileExport, Listener, Overlay, Server, ServerOptions};

struct One(Arc<dyn Export>);

impl Exports for One {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(vec![String::new()])
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Export>> {
        if name.is_empty() { Ok(self.0.clone()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

#[expect(clippy::disallowed_methods, reason = "an example reads its arguments")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, image, socket, rest @ ..] = &arguments[..] else {
        return Err("usage: serve_file IMAGE SOCKET [OVERLAY]".into());
    };
    let mut export: Arc<dyn Export> = Arc::new(FileExport::open(Path::new(image))?);
    if let [overlay] = rest {
        export = Arc::new(Overlay::open(Path::new(overlay), export, [0; 32])?);
    }
    let listener = Listener::unix(Path::new(socket))?;
    let server = Server::start(listener, Arc::new(One(export)), ServerOptions::default())?;
    io::stdin().read_to_end(&mut Vec::new())?;
    server.stop();
    Ok(())
}
