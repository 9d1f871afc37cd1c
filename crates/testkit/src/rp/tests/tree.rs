//! The tree of a bucket against a map of the standard library, in other memory, and damaged.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use proptest::prelude::*;

use super::super::*;
use crate::Random;
use strongroom_bucket::KeyRange;

#[derive(Debug, Clone)]
enum Step {
    Put(u16, usize),
    Remove(u16),
    Truncate(u16),
}

/// Keys of different lengths, of which none is the begin of all.
fn key(number: u16) -> Vec<u8> {
    let text = format!("{number:03}");
    let length = 3 + usize::from(number % 30);
    text.bytes().chain(std::iter::repeat(b'k')).take(length).collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0_u16..400;
    let step = prop_oneof![
        12 => (key.clone(), prop_oneof![0_usize..60, 3000..=VALUE_BYTES_MAX])
            .prop_map(|(key, length)| Step::Put(key, length)),
        6 => key.clone().prop_map(Step::Remove),
        1 => (250_u16..400).prop_map(Step::Truncate),
    ];
    prop::collection::vec(step, 1..400)
}

fn empty(pages: u32) -> Bucket {
    let mut bucket = Bucket::create(pages).unwrap();
    bucket.begin(KeyRange::whole(), 7).unwrap();
    bucket
}

fn all(bucket: &Bucket, bytes_max: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut found, mut from) = (Vec::new(), Vec::new());
    loop {
        let (records, next) = bucket.scan(&from, bytes_max).unwrap();
        found.extend(records);
        match next.filter(|next| Some(next) != bucket.range().unwrap().high.as_ref()) {
            Some(next) => from = next,
            None => break,
        }
    }
    assert!(found.is_sorted_by(|one, other| one.0 < other.0), "a scan is in order");
    found.into_iter().collect()
}

/// Another memfd with the same bytes.
fn copy(bucket: &Bucket) -> Bucket {
    let other = Bucket::create((bucket.bytes() / PAGE_BYTES as u64) as u32).unwrap();
    copy_memory(bucket.as_fd(), other.as_fd());
    Bucket::open(other.as_fd().try_clone_to_owned().unwrap()).unwrap()
}

pub fn copy_memory(source: std::os::fd::BorrowedFd<'_>, target: std::os::fd::BorrowedFd<'_>) {
    let mut bytes = vec![0; PAGE_BYTES];
    let mut at = 0;
    while let count @ 1.. = rustix::io::pread(source, &mut bytes, at).unwrap() {
        rustix::io::pwrite(target, &bytes[..count], at).unwrap();
        at += count as u64;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_is_a_sorted_map(steps in steps()) {
        let mut bucket = empty(300);
        let mut expected = BTreeMap::new();
        let mut random = Random::new(1);
        for step in steps {
            match step {
                Step::Put(number, length) => {
                    let value = random.noise(length);
                    bucket.put(&key(number), &value).unwrap();
                    expected.insert(key(number), value);
                }
                Step::Remove(number) => {
                    let existed = bucket.remove(&key(number)).unwrap();
                    prop_assert_eq!(existed, expected.remove(&key(number)).is_some());
                }
                Step::Truncate(number) => {
                    bucket.truncate(key(number), 7).unwrap();
                    expected.split_off(&key(number));
                    // The bucket has all keys again, without those records.
                    bucket.widen().unwrap();
                }
            }
            bucket.verify().unwrap();
        }
        prop_assert_eq!(bucket.records(), expected.len() as u64);
        prop_assert_eq!(&all(&bucket, 5000), &expected);
        let other = copy(&bucket);
        prop_assert_eq!(&all(&other, 100_000), &expected);
        prop_assert_eq!((other.range(), other.split_version()), (bucket.range(), 7));
        for number in 0..400 {
            prop_assert_eq!(bucket.get(&key(number)).unwrap(), expected.get(&key(number)).cloned());
        }
    }
}

#[test]
fn a_full_bucket_changes_nothing_and_can_be_halved() {
    let mut bucket = empty(40);
    let mut random = Random::new(2);
    let mut expected = BTreeMap::new();
    loop {
        let (key, value) = (format!("{:016x}", random.number()), random.noise(700));
        match bucket.put(key.as_bytes(), &value) {
            Ok(()) => drop(expected.insert(key.into_bytes(), value)),
            Err(error) => {
                assert!(matches!(error, TreeError::Full), "{error}");
                break;
            }
        }
    }
    bucket.verify().unwrap();
    assert_eq!(all(&bucket, 5000), expected);
    let count = expected.len();
    assert!(count > 400, "{count} records are not what 40 pages hold");
    let middle = bucket.middle().unwrap().unwrap();
    bucket.truncate(middle.clone(), 8).unwrap();
    bucket.verify().unwrap();
    expected.split_off(&middle);
    assert_eq!(expected.len(), count / 2);
    assert_eq!(all(&bucket, 5000), expected);
    assert_eq!(bucket.range().unwrap().high, Some(middle));
    // The pages of the other half are used again.
    for _ in 0..count / 4 {
        bucket.put(&[b'!'; 20], &random.noise(700)).unwrap();
        bucket.put(format!("!{:016x}", random.number()).as_bytes(), &random.noise(500)).unwrap();
    }
    bucket.verify().unwrap();
}

/// Keys of full length and values of which a page has three: 1,500 records have three levels.
#[test]
fn a_deep_tree_is_a_sorted_map() {
    let mut bucket = empty(1500);
    let mut expected = BTreeMap::new();
    let mut random = Random::new(4);
    let key = |number: u64| format!("{number:032}").into_bytes();
    for step in 0..6000 {
        let number = random.below(3000);
        if random.once_in(3) {
            let existed = bucket.remove(&key(number)).unwrap();
            assert_eq!(existed, expected.remove(&key(number)).is_some());
        } else {
            let value = vec![step as u8; VALUE_BYTES_MAX - 60 + random.below(60) as usize];
            bucket.put(&key(number), &value).unwrap();
            expected.insert(key(number), value);
        }
        if step % 500 == 0 {
            bucket.verify().unwrap();
        }
    }
    bucket.verify().unwrap();
    assert!(bucket.levels() > 2);
    assert_eq!(all(&copy(&bucket), 1 << 20), expected);
    for from in [2000, 700, 30, 0] {
        bucket.truncate(key(from), 8).unwrap();
        bucket.verify().unwrap();
        expected.split_off(&key(from));
        assert_eq!(all(&bucket, 1 << 20), expected);
    }
    assert_eq!((bucket.records(), bucket.levels()), (0, 1));
}

#[test]
fn the_first_leaves_can_be_emptied_and_filled_again() {
    let mut bucket = empty(1500);
    let key = |number: u64| format!("{number:032}").into_bytes();
    let numbers = || 0..1500_u64;
    for round in 0..3_u8 {
        for number in numbers().rev() {
            bucket.put(&key(number), &[round; 4000]).unwrap();
        }
        bucket.verify().unwrap();
        assert_eq!(bucket.records(), 1500);
        // All below a node of the middle level, in one of the rounds.
        for number in numbers().take(400 + 500 * usize::from(round)) {
            assert!(bucket.remove(&key(number)).unwrap());
        }
        bucket.verify().unwrap();
    }
}

#[test]
fn records_that_are_too_long_are_refused() {
    let mut bucket = empty(10);
    bucket.put(&[1; KEY_BYTES_MAX], &[2; VALUE_BYTES_MAX]).unwrap();
    assert!(bucket.put(&[1; KEY_BYTES_MAX + 1], &[]).is_err());
    assert!(bucket.put(&[1], &[2; VALUE_BYTES_MAX + 1]).is_err());
    assert_eq!(bucket.records(), 1);
}

/// A bucket of some levels.
fn filled() -> Bucket {
    let mut bucket = empty(400);
    let mut random = Random::new(3);
    for _ in 0..3000 {
        let (key, value) = (format!("{:016x}", random.number()), random.content(400));
        bucket.put(key.as_bytes(), &value).unwrap();
    }
    for number in (0..0xffff_u32).step_by(3) {
        bucket.remove(format!("{number:04x}").as_bytes()).unwrap();
    }
    bucket
}

/// All operations; what they answer does not matter here.
fn use_all(bucket: &mut Bucket, random: &mut Random) {
    let key = |random: &mut Random| format!("{:016x}", random.number()).into_bytes();
    for _ in 0..8 {
        let (one, value) = (key(random), random.noise(900));
        let _ = bucket.get(&one);
        let _ = bucket.put(&one, &value);
        let _ = bucket.remove(&key(random));
        let _ = bucket.scan(&key(random), 20_000);
    }
    let _ = bucket.middle();
    let _ = bucket.verify();
    let _ = bucket.truncate(key(random), 9);
    let _ = bucket.scan(&[], 1 << 20);
}

#[test]
fn damage_is_an_error_and_never_a_panic_or_a_loop() {
    let source = filled();
    let pages = source.bytes() / PAGE_BYTES as u64;
    let (mut found, mut unnoticed) = (0, 0);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut bucket = copy(&source);
        let fd = bucket.as_fd().try_clone_to_owned().unwrap();
        for _ in 0..1 + random.below(6) {
            // Most damage is among the numbers at the begin of a page.
            let page = random.below(pages.min(120));
            let places = if random.once_in(3) { PAGE_BYTES as u64 } else { 64 };
            let within = random.below(places);
            let length = 1 + random.below(4) as usize;
            let bytes = random.noise(length);
            let end = PAGE_BYTES as u64 - bytes.len() as u64;
            let at = page * PAGE_BYTES as u64 + within.min(end);
            rustix::io::pwrite(&fd, &bytes, at).unwrap();
        }
        if random.once_in(4) {
            // A page in the place of another.
            let mut page = vec![0; PAGE_BYTES];
            rustix::io::pread(&fd, &mut page, random.below(120) * PAGE_BYTES as u64).unwrap();
            rustix::io::pwrite(&fd, &page, random.below(120) * PAGE_BYTES as u64).unwrap();
        }
        match Bucket::open(fd) {
            Err(_) => found += 1,
            Ok(mut opened) => {
                unnoticed += 1;
                use_all(&mut opened, &mut random);
            }
        }
        // Damage that comes later, under a bucket that is being used.
        use_all(&mut bucket, &mut random);
    }
    assert!(found > 30, "only {found} of 60 were found, {unnoticed} not");
}

#[test]
fn memory_that_is_no_bucket_is_refused() {
    let open = |bytes: &[u8]| {
        let area = Area::create(8).unwrap();
        rustix::io::pwrite(area.as_fd(), bytes, 0).unwrap();
        Bucket::open(area.as_fd().try_clone_to_owned().unwrap())
    };
    assert!(open(&[]).unwrap().range().is_none(), "zeros are an empty bucket");
    assert!(open(b"something else").is_err());
    assert!(open(b"RP*BUCK1").is_err());
    let unsealed = tempfile::tempfile().unwrap();
    unsealed.set_len(8 * PAGE_BYTES as u64).unwrap();
    assert!(Bucket::open(unsealed.into()).is_err());
}
