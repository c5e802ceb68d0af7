//! The token file: `token,user,uid,"group1,group2"`, a line each, read once.
use crate::guard::authn::User;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::Path;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read {path}")]
    Read { path: String, source: std::io::Error },
    #[error(
        "token file '{path}' must have at least 3 columns (token, user name, user uid), found {columns}"
    )]
    Columns { path: String, columns: usize },
}

/// Users by the digest of their tokens: looking one up tells nothing about the others.
pub struct TokenFile {
    users: HashMap<[u8; 32], User>,
}

impl TokenFile {
    pub fn read(path: &Path) -> Result<TokenFile, Error> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Read { path: shown.clone(), source })?;
        let mut users = HashMap::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let columns = columns(line);
            let [token, name, uid, more @ ..] = &columns[..] else {
                return Err(Error::Columns { path: shown, columns: columns.len() });
            };
            if token.is_empty() {
                tracing::warn!(file = shown, "an empty token has been found in the token file");
                continue;
            }
            let groups = more.first().into_iter().flat_map(|groups| groups.split(','));
            let groups = groups.map(str::trim).filter(|g| !g.is_empty()).map(str::to_owned);
            let user = User {
                name: name.clone(),
                uid: uid.clone(),
                groups: groups.collect(),
                ..User::default()
            };
            users.insert(Sha256::digest(token).into(), user);
        }
        Ok(TokenFile { users })
    }

    pub fn user_of(&self, token: &str) -> Option<User> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.users.get(&digest).cloned()
    }
}

/// The columns of a line; one in quotes may hold commas, and quotes that are doubled.
fn columns(line: &str) -> Vec<String> {
    let (mut all, mut column, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                column.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(std::mem::take(&mut column).trim().to_owned()),
            other => column.push(other),
        }
    }
    all.push(column.trim().to_owned());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TokenFile, Error> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens.csv");
        std::fs::write(&path, text).expect("written");
        TokenFile::read(&path)
    }

    #[test]
    fn a_line_is_a_user() {
        let file = read("t1,jane,7,\"dev,ops\"\nt2, joe ,8\n\n,nobody,9\n").expect("a file");
        let jane = file.user_of("t1").expect("jane");
        assert_eq!((&*jane.name, &*jane.uid), ("jane", "7"));
        assert_eq!(jane.groups, ["dev", "ops"]);
        assert_eq!(file.user_of("t2").expect("joe").name, "joe");
        assert_eq!(file.user_of(""), None);
        assert_eq!(file.user_of("t3"), None);
    }

    #[test]
    fn a_short_line_is_an_error() {
        let error = read("t1,jane").err().expect("refused").to_string();
        assert!(error.ends_with("(token, user name, user uid), found 2"), "{error}");
    }
}
