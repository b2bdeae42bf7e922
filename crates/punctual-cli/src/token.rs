//! Tokens (`--token`), which a sender shows and a receiver lets in by: in a file or a variable of the environment, and not in the command line itself,
//! which everybody on the host can read.

use std::{env, fs, path::Path};

use punctual::Token;

use crate::exit::Failure;

/// The one token that a sender shows.
pub(crate) fn one(said: &str) -> Result<Token, Failure> {
    let mut tokens = read(said)?;
    match (tokens.pop(), tokens.is_empty()) {
        (Some(token), true) => Ok(token),
        _ => Err(Failure::Usage(format!("--token {said}: it has more than one token; a sender shows one"))),
    }
}

/// All that a receiver lets in by.
pub(crate) fn all(said: &[String]) -> Result<Vec<Token>, Failure> {
    let tokens = said.iter().map(|said| read(said)).collect::<Result<Vec<_>, _>>()?;
    Ok(tokens.concat())
}

/// The tokens in a file, or, with `@` before its name, in a variable: one a line. Lines that are empty or begin with `#` are none.
fn read(said: &str) -> Result<Vec<Token>, Failure> {
    let text = match said.strip_prefix('@') {
        Some(name) => env::var(name).map_err(|error| Failure::Usage(format!("--token {said}: {error}")))?,
        None => fs::read_to_string(said).map_err(|error| Failure::file("read", Path::new(said), error))?,
    };
    let lines = text.lines().map(str::trim).enumerate();
    let tokens = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(|(number, line)| {
        // What it says is nobody's business.
        Token::new(line).map_err(|error| Failure::Usage(format!("--token {said}, line {}: {error}", number + 1)))
    });
    let tokens = tokens.collect::<Result<Vec<_>, _>>()?;
    if tokens.is_empty() {
        let hint = "make one with `openssl rand -hex 32`";
        return Err(Failure::Usage(format!("--token {said}: there is no token in it; {hint}")));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "0123456789abcdef";
    const SECOND: &str = "fedcba9876543210";

    #[test]
    fn tokens_are_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            read(path.to_str().unwrap()).map_err(|failure| (failure.code(), failure.to_string()))
        };
        let token = |text: &str| Token::new(text).unwrap();
        assert_eq!(read(FIRST), Ok(vec![token(FIRST)]));
        let both = format!("# camera 7\n{FIRST}\r\n\n  {SECOND} \n");
        assert_eq!(read(&both), Ok(vec![token(FIRST), token(SECOND)]));
        assert!(one(path.to_str().unwrap()).unwrap_err().to_string().contains("more than one"));
        let (code, text) = read("\nhunter2").unwrap_err();
        assert!(code == 2 && text.contains("line 2") && text.contains("16 to 256"), "{text}");
        assert!(!text.contains("hunter2"), "a secret is not shown: {text}");
        assert!(read("# none").unwrap_err().1.contains("openssl rand"));
    }

    #[test]
    fn what_is_not_there_is_named() {
        assert_eq!(one("/no/such/file").unwrap_err().code(), 3);
        let failure = one("@PUNCTUAL_NO_SUCH_VARIABLE").unwrap_err();
        assert!(failure.code() == 2 && failure.to_string().contains("@PUNCTUAL_NO_SUCH_VARIABLE"), "{failure}");
    }
}
