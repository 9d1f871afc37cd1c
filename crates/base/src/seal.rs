//! The two ways of sealing (with a symmetric key that is used for one object only, and to the
//! repository's public key), and the owner's signature.
//!
//! Symmetric: AES-256-GCM. A key seals several messages only under different numbers. The number is
//! the nonce (little-endian, in the first eight of twelve bytes). Every object has a random key of
//! its own.
//! Public: HPKE (RFC 9180), base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305.
//! A sealed message is `encapsulated key (32) | ciphertext | tag (16)`.
//! Signatures: Ed25519 (RFC 8032) over a context, a zero byte, and the message.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use hpke::rand_core::{TryCryptoRng, TryRng};
use hpke::{Deserializable, OpModeR, OpModeS, Serializable};
use std::convert::Infallible;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::entropy::Entropy;

type Kem = hpke::kem::X25519HkdfSha256;
type Kdf = hpke::kdf::HkdfSha256;
type HpkeAead = hpke::aead::ChaCha20Poly1305;

/// Bytes that authentication adds to a message.
pub const TAG_BYTES: usize = 16;
/// Bytes that sealing to a public key adds to a message.
pub const PUBLIC_SEAL_BYTES: usize = 32 + TAG_BYTES;

/// What was opened is not what was sealed: the key or the place is another, or it is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("authentication failed: wrong key, wrong place, or damaged bytes")]
pub struct OpenError;

/// A symmetric key (AES-256-GCM).
pub struct SealKey(LessSafeKey);

impl SealKey {
    /// The key of these bytes.
    pub fn new(bytes: &[u8; 32]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, bytes).expect("an AES-256 key has 32 bytes");
        Self(LessSafeKey::new(key))
    }

    /// Encrypts `message` in place and appends the tag. A `number` is used once per key.
    pub fn seal(&self, number: u64, aad: &[u8], message: &mut Vec<u8>) {
        self.seal_from(0, number, aad, message);
    }

    /// As [`SealKey::seal`], for the bytes from `start` on.
    pub fn seal_from(&self, start: usize, number: u64, aad: &[u8], bytes: &mut Vec<u8>) {
        let message = &mut bytes[start..];
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce(number), Aad::from(aad), message)
            .expect("a message is shorter than the 64 GiB that GCM can seal");
        bytes.extend_from_slice(tag.as_ref());
    }

    /// As [`SealKey::seal`], where the bytes end with room for the tag.
    pub fn seal_in_place(&self, number: u64, aad: &[u8], bytes: &mut [u8]) {
        let end = bytes.len().checked_sub(TAG_BYTES).expect("there is room for the tag");
        let (message, tag) = bytes.split_at_mut(end);
        let sealed = self
            .0
            .seal_in_place_separate_tag(nonce(number), Aad::from(aad), message)
            .expect("a message is shorter than the 64 GiB that GCM can seal");
        tag.copy_from_slice(sealed.as_ref());
    }

    /// Decrypts in place what `seal` made; gives the message without its tag.
    pub fn open<'m>(
        &self,
        number: u64,
        aad: &[u8],
        sealed: &'m mut [u8],
    ) -> Result<&'m mut [u8], OpenError> {
        self.0.open_in_place(nonce(number), Aad::from(aad), sealed).map_err(|_| OpenError)
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// The half of the key pair that seals. Holders of a key have it; it is hidden from all others.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct PublicKey(pub [u8; 32]);

/// The half of the key pair that opens.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PrivateKey([u8; 32]);

impl PublicKey {
    /// Seals `message` so that only the private key opens it. `info` names what kind of thing it
    /// is; `aad` names which one.
    pub fn seal(&self, info: &str, aad: &[u8], message: &[u8], entropy: &dyn Entropy) -> Vec<u8> {
        let key = <Kem as hpke::Kem>::PublicKey::from_bytes(&self.0)
            .expect("any 32 bytes are an X25519 public key");
        let (encapsulated, ciphertext) = hpke::single_shot_seal_with_rng::<HpkeAead, Kdf, Kem>(
            &OpModeS::Base,
            &key,
            info.as_bytes(),
            message,
            aad,
            &mut Random(entropy),
        )
        .expect("sealing fails only for a key of low order, which is never derived");
        let mut sealed = encapsulated.to_bytes().to_vec();
        sealed.extend_from_slice(&ciphertext);
        sealed
    }
}

impl PrivateKey {
    /// The key of these bytes (clamped by X25519 itself).
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The other half.
    pub fn public(&self) -> PublicKey {
        let private = self.to_hpke();
        let public = <Kem as hpke::Kem>::sk_to_pk(&private);
        PublicKey(public.to_bytes().into())
    }

    /// Opens what the public key sealed under the same `info` and `aad`.
    pub fn open(&self, info: &str, aad: &[u8], sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        #[cfg(feature = "memo")]
        return crate::memo::once(&[b"open", &self.0, info.as_bytes(), aad, sealed], || {
            self.open_now(info, aad, sealed).ok()
        })
        .ok_or(OpenError);
        #[cfg(not(feature = "memo"))]
        self.open_now(info, aad, sealed)
    }

    fn open_now(&self, info: &str, aad: &[u8], sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        let (encapsulated, ciphertext) = sealed.split_at_checked(32).ok_or(OpenError)?;
        let encapsulated =
            <Kem as hpke::Kem>::EncappedKey::from_bytes(encapsulated).map_err(|_| OpenError)?;
        hpke::single_shot_open::<HpkeAead, Kdf, Kem>(
            &OpModeR::Base,
            &self.to_hpke(),
            &encapsulated,
            info.as_bytes(),
            ciphertext,
            aad,
        )
        .map_err(|_| OpenError)
    }

    fn to_hpke(&self) -> <Kem as hpke::Kem>::PrivateKey {
        <Kem as hpke::Kem>::PrivateKey::from_bytes(&self.0)
            .expect("any 32 bytes are an X25519 private key")
    }
}

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// The half of the owner's signing key that verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityPublicKey(pub [u8; 32]);

/// The half of the owner's signing key that signs: the seed of an Ed25519 key.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct AuthorityKey([u8; 32]);

impl AuthorityKey {
    /// The key of this seed.
    pub fn new(seed: [u8; 32]) -> Self {
        Self(seed)
    }

    /// The other half.
    pub fn public(&self) -> AuthorityPublicKey {
        let public = self.pair().public_key().as_ref().try_into();
        AuthorityPublicKey(public.expect("an Ed25519 public key has 32 bytes"))
    }

    /// Signs `message`. `context` names what kind of thing it is, so that a signature of one kind
    /// never passes for another.
    pub fn sign(&self, context: &str, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let signature = self.pair().sign(&signed_bytes(context, message));
        signature.as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }

    fn pair(&self) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&self.0).expect("any 32 bytes are an Ed25519 seed")
    }
}

impl AuthorityPublicKey {
    /// True if the authority signed this message in this context.
    pub fn verifies(&self, context: &str, message: &[u8], signature: &[u8]) -> bool {
        let signed = signed_bytes(context, message);
        #[cfg(feature = "memo")]
        return crate::memo::once(&[b"verifies", &self.0, &signed, signature], || {
            self.verifies_now(&signed, signature).then(Vec::new)
        })
        .is_some();
        #[cfg(not(feature = "memo"))]
        self.verifies_now(&signed, signature)
    }

    fn verifies_now(&self, signed: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(signed, signature).is_ok()
    }
}

fn signed_bytes(context: &str, message: &[u8]) -> Vec<u8> {
    [context.as_bytes(), &[0], message].concat()
}

/// Our entropy in the form that HPKE requires.
struct Random<'e>(&'e dyn Entropy);

impl TryRng for Random<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::from_le_bytes(crate::entropy::random_array(self.0)))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from_le_bytes(crate::entropy::random_array(self.0)))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(bytes);
        Ok(())
    }
}

impl TryCryptoRng for Random<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededEntropy;

    #[test]
    fn sealed_opens_only_with_its_key_number_and_place() {
        let key = SealKey::new(&[7; 32]);
        let mut sealed = b"message".to_vec();
        key.seal(3, b"place", &mut sealed);
        assert_eq!(sealed.len(), 7 + TAG_BYTES);
        assert_eq!(
            key.open(3, b"place", &mut sealed.clone()),
            Ok(&mut b"message"[..].to_vec()[..])
        );
        assert!(key.open(4, b"place", &mut sealed.clone()).is_err());
        assert!(key.open(3, b"other", &mut sealed.clone()).is_err());
        assert!(SealKey::new(&[8; 32]).open(3, b"place", &mut sealed).is_err());
    }

    #[test]
    fn a_signature_belongs_to_its_key_context_and_message() {
        let key = AuthorityKey::new([5; 32]);
        let signature = key.sign("kind", b"message");
        assert!(key.public().verifies("kind", b"message", &signature));
        assert!(!key.public().verifies("other", b"message", &signature));
        assert!(!key.public().verifies("kind", b"massage", &signature));
        assert!(!key.public().verifies("kind", b"message", &signature[..63]));
        assert!(!AuthorityKey::new([6; 32]).public().verifies("kind", b"message", &signature));
    }

    #[test]
    fn public_seal_opens_with_the_private_key_alone() {
        let entropy = SeededEntropy::new(1);
        let private = PrivateKey::new([5; 32]);
        let sealed = private.public().seal("kind", b"which", b"message", &entropy);
        assert_eq!(sealed.len(), 7 + PUBLIC_SEAL_BYTES);
        assert_eq!(private.open("kind", b"which", &sealed).as_deref(), Ok(&b"message"[..]));
        assert!(private.open("other", b"which", &sealed).is_err());
        assert!(private.open("kind", b"that", &sealed).is_err());
        assert!(PrivateKey::new([6; 32]).open("kind", b"which", &sealed).is_err());
        for cut in [0, 31, 32, 47, sealed.len() - 1] {
            assert!(private.open("kind", b"which", &sealed[..cut]).is_err());
        }
    }
}
