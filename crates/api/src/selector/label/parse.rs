//! Reading a label selector: a scanner, and a parser by recursive descent.
//!
//! Both follow upstream step by step, since which token is named in which error depends on it.

use std::collections::BTreeSet;

use super::requirement::invalid_key;
use super::{Error, Operator, Requirement};
use crate::field::Path;

/// The requirements in the order written.
pub fn parse(text: &str) -> Result<Vec<Requirement>, Error> {
    let mut parser = Parser { tokens: scan(text), position: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::End => return Ok(requirements),
            Token::Word(_) | Token::Symbol("!") => {
                let requirement = parser.requirement();
                requirements.push(requirement.map_err(|e| Error::Requirement(Box::new(e)))?);
            }
            found => {
                return Err(unexpected(found, ", expected: !, identifier, or 'end of string'"));
            }
        }
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => match parser.peek() {
                Token::Word(_) | Token::Symbol("!") => {}
                found => return Err(unexpected(found, ", expected: identifier after ','")),
            },
            found => return Err(unexpected(found, ", expected: ',' or 'end of string'")),
        }
    }
}

struct Parser<'a> {
    /// Ends with `End`, and is never read beyond it.
    tokens: Vec<Token<'a>>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.position).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, Error> {
        let mut token = self.next();
        let negated = token == Token::Symbol("!");
        if negated {
            token = self.next();
        }
        let Token::Word(key) = token else {
            return Err(unexpected(token, ", expected: identifier"));
        };
        if let Some(error) = invalid_key(key, &Path::NIL) {
            return Err(Error::Invalid(vec![error]));
        }
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, vec![], &Path::NIL);
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Requirement::new(key, Operator::Exists, vec![], &Path::NIL);
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?.to_owned()],
        };
        Requirement::new(key, operator, values, &Path::NIL)
    }

    fn operator(&mut self) -> Result<Operator, Error> {
        match self.next() {
            Token::Word("in") => Ok(Operator::In),
            Token::Word("notin") => Ok(Operator::NotIn),
            Token::Symbol("=") => Ok(Operator::Equals),
            Token::Symbol("==") => Ok(Operator::DoubleEquals),
            Token::Symbol("!=") => Ok(Operator::NotEquals),
            Token::Symbol(">") => Ok(Operator::GreaterThan),
            Token::Symbol("<") => Ok(Operator::LessThan),
            found => Err(unexpected(found, ", expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn exact_value(&mut self) -> Result<&'a str, Error> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok("");
        }
        match self.next() {
            Token::Word(value) => Ok(value),
            found => Err(unexpected(found, ", expected: identifier")),
        }
    }

    /// `(a,b)`, sorted and without repetitions. `()` holds the empty value.
    fn values(&mut self) -> Result<Vec<String>, Error> {
        match self.next() {
            Token::Symbol("(") => {}
            found => return Err(unexpected(found, " expected: '('")),
        }
        let values = match self.peek() {
            Token::Word(_) | Token::Symbol(",") => self.list()?,
            Token::Symbol(")") => BTreeSet::from([""]),
            found => return Err(unexpected(found, ", expected: ',', ')' or identifier")),
        };
        self.next(); // the list has stopped before its ')'
        Ok(values.into_iter().map(str::to_owned).collect())
    }

    /// Values may be missing between, before and after commas; each is then empty.
    fn list(&mut self) -> Result<BTreeSet<&'a str>, Error> {
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                Token::Word(value) => {
                    values.insert(value);
                    match self.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => return Ok(values),
                        found => return Err(unexpected(found, ", expected: ',' or ')'")),
                    }
                }
                Token::Symbol(",") => {
                    if values.is_empty() {
                        values.insert("");
                    }
                    match self.peek() {
                        Token::Symbol(")") => {
                            values.insert("");
                            return Ok(values);
                        }
                        Token::Symbol(",") => {
                            values.insert("");
                        }
                        _ => {}
                    }
                }
                found => return Err(unexpected(found, ", expected: ',', or identifier")),
            }
        }
    }
}

fn unexpected(found: Token<'_>, expected: &'static str) -> Error {
    Error::Unexpected { found: found.text().to_owned(), expected }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    End,
    Symbol(&'a str),
    /// A key or a value. `in` and `notin` are words too, as they may be either.
    Word(&'a str),
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::End => "",
            Token::Symbol(text) | Token::Word(text) => text,
        }
    }
}

fn scan(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        // A NUL where a token might begin ends the text, as in upstream's scanner.
        if rest.is_empty() || rest.starts_with('\0') {
            tokens.push(Token::End);
            return tokens;
        }
        let symbol = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"]
            .into_iter()
            .find(|symbol| rest.starts_with(symbol));
        if let Some(symbol) = symbol {
            tokens.push(Token::Symbol(symbol));
            rest = skip_nul(&rest[symbol.len()..]);
            continue;
        }
        let end = rest
            .find(|c: char| "=!(),><".contains(c) || " \t\r\n\0".contains(c))
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        tokens.push(Token::Word(word));
        rest = skip_nul(after);
    }
}

/// A NUL right after a token only ends that token.
fn skip_nul(text: &str) -> &str {
    text.strip_prefix('\0').unwrap_or(text)
}
