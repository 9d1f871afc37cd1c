//! Swap areas as `mkswap` makes them.

use strongroom_disk::Swap;
use strongroom_testkit::skipped;

use crate::world::{Image, folder, lacks, run};

#[test]
fn an_area_of_mkswap_is_found() {
    if skipped(lacks(&["mkswap"])) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("swap");
    run("truncate", &["-s", "1000K", path.to_str().unwrap()]);
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    run("mkswap", &["-L", "swapped", "-U", uuid, path.to_str().unwrap()]);
    let swap = Swap::find(&Image::open(&path)).unwrap().unwrap();
    assert_eq!(swap.label, b"swapped");
    assert_eq!(swap.uuid[..4], [0x01, 0x23, 0x45, 0x67]);
    assert_eq!(swap.free, 4096..1000 * 1024);
    assert!(!swap.hibernated);
}
