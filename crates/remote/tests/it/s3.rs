//! Buckets of a real S3 server.

use std::time::Duration;

use strongroom_backend::{BackendError, ObjectName, Refusal};
use strongroom_testkit::conformance;
use strongroom_testkit::relay::{LineOptions, Relay};
use strongroom_testkit::servers::versitygw;

use crate::{place, settings};

#[test]
fn a_bucket_of_versitygw_conforms() {
    let gateway = versitygw();
    let settings = settings(gateway.variables(gateway.server.address));
    for text in ["s3://bucket", "s3://bucket/a folder/of mine"] {
        let backend = place(text).create(&settings).unwrap();
        assert!(backend.holds_at_most("keys").unwrap());
        conformance::check(&*backend);
        assert!(!backend.holds_at_most("keys").unwrap());
        assert_eq!(backend.describe(), text);
        for info in backend.list("arenas").unwrap().iter().chain(&backend.list("").unwrap()) {
            backend.remove(&info.name).unwrap();
        }
    }
}

#[test]
fn what_is_wrong_with_a_bucket_is_named() {
    let gateway = versitygw();
    let right = gateway.variables(gateway.server.address);
    let refusal = |text: &str, changed: &str, value: &str| {
        let mut variables = right.clone();
        variables
            .iter_mut()
            .filter(|(name, _)| name == changed)
            .for_each(|(_, v)| *v = value.into());
        match place(text).open(&settings(variables)).map(|backend| backend.unwrap().list("keys")) {
            Err(BackendError::Refused { refusal, .. })
            | Ok(Err(BackendError::Refused { refusal, .. })) => refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refusal("s3://nothing", "", ""), Refusal::NoSuchPlace);
    assert_eq!(refusal("s3://bucket", "AWS_SECRET_ACCESS_KEY", "wrong"), Refusal::Credentials);
    assert_eq!(refusal("s3://bucket", "AWS_ACCESS_KEY_ID", "wrong"), Refusal::Credentials);
    assert_eq!(refusal("s3://bucket", "AWS_REGION", "mars-north-1"), Refusal::Region);
}

#[test]
fn a_connection_that_is_cut_is_made_again() {
    let gateway = versitygw();
    let line = LineOptions { delay: Duration::from_millis(1), bytes_per_second: Some(20 << 20) };
    let relay = Relay::start(gateway.server.address, line);
    let backend = place("s3://bucket").open(&settings(gateway.variables(relay.address))).unwrap();
    let backend = backend.unwrap();
    let bytes = vec![7; 8 << 20];
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..4 {
                backend.create(&ObjectName::new("arenas", number), &bytes).unwrap();
                assert_eq!(
                    backend.read(&ObjectName::new("arenas", number), 0, 9 << 20).unwrap(),
                    bytes
                );
            }
        });
        while !writer.is_finished() {
            std::thread::sleep(Duration::from_millis(900));
            relay.cut();
        }
    });
    assert_eq!(backend.list("arenas").unwrap().len(), 4);
}

#[test]
fn long_objects_go_in_parts_and_are_created_once() {
    let gateway = versitygw();
    let backend =
        place("s3://bucket/a").create(&settings(gateway.variables(gateway.server.address)));
    let backend = backend.unwrap();
    let name = ObjectName::new("arenas", "long");
    let bytes: Vec<u8> = (0..70_000_001_u32).map(|place| (place % 251) as u8).collect();
    backend.create(&name, &bytes).unwrap();
    assert_eq!(backend.size(&name).unwrap(), bytes.len() as u64);
    assert!(strongroom_backend::read_all(&*backend, &name).unwrap() == bytes);
    // Its answer was lost: equal bytes are success, others are not.
    backend.create(&name, &bytes).unwrap();
    let other = backend.create(&name, &bytes[1..]);
    assert!(matches!(other, Err(BackendError::AlreadyExists { .. })), "{other:?}");
    backend.replace(&name, &bytes[1..]).unwrap();
    assert!(strongroom_backend::read_all(&*backend, &name).unwrap() == bytes[1..]);
}

/// `GOVERNANCE`, as buckets have it by default, is lifted by a right of its own.
#[test]
fn a_lock_that_can_be_lifted_becomes_one_that_cannot() {
    let gateway = versitygw();
    let settings = settings(gateway.variables(gateway.server.address));
    let name = ObjectName::new("arenas", "a");
    gateway.by_amazons_client("s3.create_bucket(Bucket='locked', ObjectLockEnabledForBucket=True)");
    let locked = place("s3://locked").open(&settings).unwrap().unwrap();
    locked.create(&name, b"1").unwrap();
    gateway.by_amazons_client(
        "import datetime\n\
         end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=90)\n\
         s3.put_object_retention(Bucket='locked', Key='arenas/a', \
         Retention={'Mode': 'GOVERNANCE', 'RetainUntilDate': end})",
    );
    let now = strongroom_base::Clock::now(&strongroom_base::SystemClock);
    let month = strongroom_base::Timestamp(now.0 + 30 * 86_400_000_000_000);
    match locked.retain(&name, month) {
        Ok(()) => gateway.by_amazons_client(
            "found = s3.get_object_retention(Bucket='locked', Key='arenas/a')['Retention']\n\
             assert found['Mode'] == 'COMPLIANCE', found",
        ),
        Err(BackendError::Refused { refusal, .. }) => assert_eq!(refusal, Refusal::Locked),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_locked_object_keeps_its_bytes() {
    let gateway = versitygw();
    let settings = settings(gateway.variables(gateway.server.address));
    let name = ObjectName::new("arenas", "a");
    let day = |days: i64| {
        let now = strongroom_base::Clock::now(&strongroom_base::SystemClock);
        strongroom_base::Timestamp(now.0 + days * 86_400_000_000_000)
    };
    let open = place("s3://bucket").open(&settings).unwrap().unwrap();
    open.create(&name, b"1").unwrap();
    let error = open.retain(&name, day(1)).unwrap_err();
    assert!(matches!(error, BackendError::Unsupported { .. }), "{error:?}");

    gateway.by_amazons_client("s3.create_bucket(Bucket='locked', ObjectLockEnabledForBucket=True)");
    let locked = place("s3://locked").open(&settings).unwrap().unwrap();
    locked.create(&name, b"1").unwrap();
    assert!(locked.retain(&ObjectName::new("arenas", "b"), day(1)).unwrap_err().is_not_found());
    locked.retain(&name, day(2)).unwrap();
    locked.retain(&name, day(2)).unwrap();
    locked.retain(&name, day(3)).unwrap();
    // An earlier time changes nothing.
    locked.retain(&name, day(1)).unwrap();
    // A lock is that of a version: other bytes and a removal only hide it.
    locked.replace(&name, b"22").unwrap();
    locked.remove(&name).unwrap();
    gateway.by_amazons_client(
        "found = s3.list_object_versions(Bucket='locked')['Versions']\n\
         [first] = [v['VersionId'] for v in found if v['Size'] == 1]\n\
         until = s3.get_object_retention(Bucket='locked', Key='arenas/a', VersionId=first)\n\
         import datetime\n\
         left = until['Retention']['RetainUntilDate'] - datetime.datetime.now(datetime.UTC)\n\
         assert left > datetime.timedelta(days=2), left\n\
         try: s3.delete_object(Bucket='locked', Key='arenas/a', VersionId=first)\n\
         except s3.exceptions.ClientError as e: assert e.response['Error']['Code'] == 'AccessDenied', e\n\
         else: raise SystemExit('a locked version was deleted')",
    );
}
