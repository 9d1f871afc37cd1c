//! Messages: there and back, and bytes that are none.

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use strongroom_bucket::KeyRange;

use super::super::wire::{Answer, Condition, Image, Request, SplitId, Status};

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..32)
}

fn records() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    prop::collection::vec((keys(), prop::collection::vec(any::<u8>(), 0..100)), 0..20)
}

fn ranges() -> impl Strategy<Value = KeyRange> {
    (keys(), prop::option::of(keys()))
        .prop_map(|(low, high)| KeyRange { low, high })
        .prop_filter("it has keys", KeyRange::is_valid)
}

/// Without the scope and the flow of an address of IPv6, which are not sent.
fn addresses() -> impl Strategy<Value = SocketAddr> {
    let address = prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u16; 8]>().prop_map(IpAddr::from),
    ];
    (address, any::<u16>()).prop_map(SocketAddr::from)
}

fn requests() -> impl Strategy<Value = Request> {
    let split =
        (any::<u32>(), any::<u64>()).prop_map(|(bucket, version)| SplitId { bucket, version });
    prop_oneof![
        keys().prop_map(Request::Get),
        records().prop_map(Request::Put),
        keys().prop_map(Request::Remove),
        keys().prop_map(Request::Scan),
        Just(Request::Status),
        addresses().prop_map(Request::Introduce),
        (split.clone(), ranges()).prop_map(|(split, range)| Request::SplitBegin(split, range)),
        records().prop_map(Request::SplitRecords),
        split.clone().prop_map(Request::SplitCommit),
        split.prop_map(Request::SplitAsk),
    ]
}

fn images() -> impl Strategy<Value = Vec<Image>> {
    let image = (ranges(), any::<u64>(), addresses())
        .prop_map(|(range, split_version, address)| Image { range, split_version, address });
    prop::collection::vec(image, 0..5)
}

fn answers() -> impl Strategy<Value = Answer> {
    let fields = (any::<u32>(), any::<u64>(), any::<u64>(), prop::option::of(ranges()), images());
    let status = fields.prop_map(|(bucket, split_version, records, range, given)| {
        let condition = Condition::InDoubt;
        Status { bucket, condition, range, split_version, records, given }
    });
    prop_oneof![
        prop::option::of(keys()).prop_map(Answer::Value),
        any::<u32>().prop_map(Answer::Done),
        (records(), prop::option::of(keys()))
            .prop_map(|(records, next)| Answer::Records(records, next)),
        status.prop_map(Answer::Status),
        images().prop_map(Answer::Moved),
        prop::sample::select(vec![Answer::Taken, Answer::NotTaken, Answer::Empty, Answer::Evicted]),
        any::<String>().prop_map(Answer::Busy),
        any::<String>().prop_map(Answer::Failed),
    ]
}

proptest! {
    #[test]
    fn messages_come_back(request in requests(), answer in answers()) {
        prop_assert_eq!(Request::decode(&request.encode()), Ok(request.clone()));
        prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer.clone()));
        let mut longer = request.encode();
        longer.push(0);
        prop_assert!(Request::decode(&longer).is_err());
    }

    #[test]
    fn any_bytes_can_be_decoded(kind in 0_u8..14, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let message: Vec<u8> = [kind].into_iter().chain(bytes).collect();
        let _ = Request::decode(&message);
        let _ = Answer::decode(&message);
    }

    #[test]
    fn damaged_messages_can_be_decoded(
        request in requests(),
        answer in answers(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let (mut request, mut answer) = (request.encode(), answer.encode());
        let place = at.index(request.len());
        request[place] = byte;
        let _ = Request::decode(&request);
        let _ = Request::decode(&request[..place]);
        let place = at.index(answer.len());
        answer[place] = byte;
        let _ = Answer::decode(&answer);
        let _ = Answer::decode(&answer[..place]);
    }
}

#[test]
fn a_lie_about_a_count_takes_no_memory() {
    let mut message = vec![2];
    message.extend_from_slice(&u32::MAX.to_le_bytes());
    assert!(Request::decode(&message).is_err());
    message[0] = 5;
    assert!(Answer::decode(&message).is_err());
}
