//! The name by which programs that were linked with VELOC find the library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libveloc-client.so");
}
