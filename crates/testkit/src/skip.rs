//! Tests that cannot run on this machine.

/// Notes why a test does nothing here. `./test` sets `STRONGROOM_TEST_ALL`: there the test fails,
/// since one that did nothing has shown nothing.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "set by ./test for all tests at once")]
#[expect(clippy::print_stderr, reason = "shown with the test's output")]
pub fn skip(reason: &str) {
    let all = std::env::var_os("STRONGROOM_TEST_ALL").is_some();
    assert!(!all, "this test cannot run: {reason}");
    eprintln!("skipped: {reason}");
}

/// [`skip`] if there is a reason to; true if there is.
#[track_caller]
pub fn skipped(reason: Option<&str>) -> bool {
    if let Some(reason) = reason {
        skip(reason);
    }
    reason.is_some()
}
