//! What a client may have to show before a server lets it in, besides certificates or instead of them.

use std::fmt;

use subtle::ConstantTimeEq as _;
use thiserror::Error;

/// A secret that a client shows, and by which a server lets it in.
///
/// It is sent when TLS has made sure of the server, and never before; nobody else can read it. Two are compared in a time that does not depend on what
/// they are. It does not show itself in `Debug`.
///
/// ```
/// # use punctual_proto::Token;
/// let token = Token::new("d9f3c1a0b7e24d68")?;
/// assert!(token == Token::new(*b"d9f3c1a0b7e24d68")? && token != Token::new("d9f3c1a0b7e24d69")?);
/// assert!(Token::new("secret").is_err(), "that can be guessed");
/// assert!(!format!("{token:?}").contains("d9f3"));
/// # Ok::<(), punctual_proto::TokenError>(())
/// ```
#[derive(Clone)]
pub struct Token(Vec<u8>);

/// Not a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a token has {} to {} bytes, not {len}", Token::MIN, Token::MAX)]
#[non_exhaustive]
pub struct TokenError {
    /// How many bytes there are.
    pub len: usize,
}

impl Token {
    /// The shortest, bytes: what is drawn at random, and written in hexadecimal, cannot be guessed over a network.
    pub const MIN: usize = 16;
    /// The longest, bytes.
    pub const MAX: usize = 256;

    /// Takes any bytes. They should have been drawn at random.
    ///
    /// # Errors
    /// If they are fewer than [`MIN`](Self::MIN) or more than [`MAX`](Self::MAX).
    pub fn new(secret: impl Into<Vec<u8>>) -> Result<Self, TokenError> {
        let secret = secret.into();
        match secret.len() {
            Self::MIN..=Self::MAX => Ok(Self(secret)),
            len => Err(TokenError { len }),
        }
    }

    /// As it goes on the wire.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is one of these, of which all are looked at.
    pub(crate) fn is_among(&self, tokens: &[Self]) -> bool {
        tokens.iter().fold(false, |found, token| found | (token == self))
    }

    fn padded(&self) -> [u8; Self::MAX] {
        let mut padded = [0; Self::MAX];
        padded[..self.0.len()].copy_from_slice(&self.0);
        padded
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        (self.padded().ct_eq(&other.padded()) & self.0.len().ct_eq(&other.0.len())).into()
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_by_any_byte_and_by_their_length() {
        let token = |bytes: &[u8]| Token::new(bytes).unwrap();
        let known = [token(&[7; 16]), token(&[7; 17]), token(&[0; 256])];
        assert!(known.iter().all(|one| one.is_among(&known)));
        for n in 0..16 {
            let mut other = [7; 16];
            other[n] ^= 0x80;
            assert!(!token(&other).is_among(&known));
        }
        // As if zeros had been left out.
        assert_ne!(token(&[0; 16]), token(&[0; 17]));
        assert!(!token(&[0; 255]).is_among(&known));
        assert_eq!(
            (Token::new([0; 15]), Token::new([0; 257])),
            (Err(TokenError { len: 15 }), Err(TokenError { len: 257 }))
        );
    }
}
