//! Bad nights: word that does not arrive, disks that are full, clocks that are wrong.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::json::is_a_notice;
use crate::runs::{STEPS, next, say, webhook, with_profile, write_profile};

#[test]
fn a_notice_that_did_not_arrive_is_sent_with_the_next() {
    let world = with_profile(&STEPS.replace("~/tree", "/nowhere/at/all"));
    let (hook, requests) = webhook(&["404 Gone", "404 Gone", "200 OK", "200 OK"]);
    let run = || say(&world, &format!("run --notify {hook}/secret"));
    run().exits(1).warns("404");
    next(&requests);
    let record = fs::read_to_string(world.path(".local/state/strongroom/default.json")).unwrap();
    assert!(!record.contains("secret"), "{record}");
    say(&world, "status").exits(1).says("not delivered yet to the webhook at 127.0.0.1");
    let status = say(&world, "status --json").exits(1);
    assert_eq!(status.summary()["last_run"]["undelivered"].as_array().unwrap().len(), 1);
    crate::json::follows_the_schema(&status);
    // A good run is not of interest, but what was missed is, and it is kept until it arrives.
    write_profile(&world, STEPS);
    run().exits(3).warns("404");
    next(&requests);
    run().exits(0);
    let body: Value = serde_json::from_str(&next(&requests).1).unwrap();
    is_a_notice(&body);
    assert_eq!(body["verdict"], "failed", "{body}");
    let subject = body["subject"].as_str().unwrap();
    assert!(subject.contains("all done; not delivered before: failed: backup ("), "{subject}");
    assert!(subject.ends_with(" ago)"), "{subject}");
    let text = body["text"].as_str().unwrap();
    assert!(text.find("all done") < text.find("/nowhere/at/all"), "{text}");
    assert_eq!(body["earlier"].as_array().unwrap().len(), 1, "{body}");
    assert_eq!(body["earlier"][0]["verdict"], "failed");
    // Only once.
    run().exits(0);
    assert!(requests.recv_timeout(Duration::from_millis(100)).is_err());
    let status = say(&world, "status").exits(0);
    assert!(!status.out.contains("not delivered"), "{}", status.out);
}

#[test]
fn several_notices_come_in_one_message_the_newer_first() {
    let world = with_profile("[default.backup]\npaths = [\"/nowhere/a\"]\n");
    let (hook, requests) = webhook(&["404 Gone", "404 Gone", "200 OK", "200 OK"]);
    let run = || say(&world, &format!("run --notify {hook}"));
    run().exits(1);
    write_profile(&world, "[default.backup]\npaths = [\"/nowhere/b\"]\n");
    run().exits(1);
    write_profile(&world, "[default.backup]\npaths = [\"/nowhere/c\"]\n");
    run().exits(1);
    let body =
        [next(&requests), next(&requests), next(&requests)].map(|request| request.1)[2].clone();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert!(
        body["subject"].as_str().unwrap().ends_with("; not delivered before: 2 runs"),
        "{body}"
    );
    let text = body["text"].as_str().unwrap();
    let places =
        ["/nowhere/c", "/nowhere/b", "/nowhere/a"].map(|path| text.find(path).expect(path));
    assert!(places.is_sorted(), "{text}");
    // To a check, it is as the last run was.
    write_profile(&world, "[default.backup]\npaths = [\"~/tree\"]\n");
    let (check, requests) = webhook(&["404 Gone", "404 Gone", "200 OK", "200 OK"]);
    let failing = format!("run --notify healthchecks:{check}/id");
    write_profile(&world, "[default.backup]\npaths = [\"/nowhere/d\"]\n");
    say(&world, &failing).exits(1);
    write_profile(&world, "[default.backup]\npaths = [\"~/tree\"]\n");
    say(&world, &failing).exits(0);
    let [_, _, _, (line, text)] = [(); 4].map(|()| next(&requests));
    assert!(line.starts_with("POST /id ") && text.contains("/nowhere/d"), "{line}\n{text}");
}
