//! The words of a Corefile, and what is imported put in place of who imports it.
use super::CorefileError;
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Clone)]
pub struct Token {
    /// Words with the same numbers are on one line: of the text, or of one that was imported.
    row: (usize, usize),
    /// The line that people look for.
    line: usize,
    pub text: String,
}

impl Token {
    pub fn wrong(&self, problem: &str) -> CorefileError {
        CorefileError { line: self.line, problem: format!("{}: {problem}", self.text) }
    }

    pub fn is_beside(&self, other: &Token) -> bool {
        self.row == other.row
    }
}

/// A plugin with what follows it: arguments on its own line, and lines within braces.
pub struct Directive {
    pub name: Token,
    pub arguments: Vec<Token>,
    pub lines: Vec<Line>,
}

pub type Line = Vec<Token>;

pub struct Tokens {
    left: VecDeque<Token>,
    line: usize,
}

/// Who imports himself would never end.
const MOST_IMPORTS: usize = 1000;

impl Tokens {
    /// `files`: what is imported by a pattern of names, not as a `(snippet)` of the text.
    pub fn new(text: &str, files: &BTreeMap<String, String>) -> Result<Tokens, CorefileError> {
        let (mut snippets, rest) = snippets(words(text));
        let mut left: VecDeque<Token> = rest.into();
        let mut all: VecDeque<Token> = VecDeque::new();
        let (mut imports, mut before) = (0, None);
        while let Some(token) = left.pop_front() {
            let begins = before.replace(token.row) != Some(token.row);
            if !begins || token.text != "import" {
                all.push_back(token);
                continue;
            }
            let mut arguments = Vec::new();
            while let Some(next) = left.pop_front_if(|next| next.row == token.row) {
                arguments.push(next.text);
            }
            let Some((what, arguments)) = arguments.split_first() else {
                return Err(token.wrong("import SNIPPET or import FILES"));
            };
            let words = imported(&token, what, arguments, &snippets, files)?;
            // Imported words may bring snippets of their own.
            let (more, words) = self::snippets(words);
            snippets.extend(more);
            imports += 1;
            for word in words.into_iter().rev() {
                left.push_front(Token { row: (imports, word.row.1), line: token.line, ..word });
            }
            if imports > MOST_IMPORTS {
                return Err(token.wrong("it imports itself"));
            }
        }
        Ok(Tokens { left: all, line: 0 })
    }

    pub fn next(&mut self) -> Option<Token> {
        let token = self.left.pop_front()?;
        self.line = token.line;
        Some(token)
    }

    fn next_if(&mut self, fits: impl FnOnce(&Token) -> bool) -> Option<Token> {
        self.left.pop_front_if(|token| fits(token))
    }

    fn ended(&self) -> CorefileError {
        CorefileError { line: self.line, problem: "a } is missing".to_owned() }
    }

    /// `None`: the block ends here.
    pub fn directive(&mut self) -> Result<Option<Directive>, CorefileError> {
        let name = self.next().ok_or_else(|| self.ended())?;
        if name.text == "}" {
            return Ok(None);
        }
        let (mut arguments, mut lines) = (Vec::new(), Vec::new());
        while let Some(token) = self.next_if(|token| token.is_beside(&name)) {
            if token.text != "{" {
                arguments.push(token);
                continue;
            }
            loop {
                let first = self.next().ok_or_else(|| self.ended())?;
                if first.text == "}" {
                    return Ok(Some(Directive { name, arguments, lines }));
                }
                let mut line = vec![first];
                while let Some(token) =
                    self.next_if(|token| token.is_beside(&line[0]) && token.text != "}")
                {
                    line.push(token);
                }
                lines.push(line);
            }
        }
        Ok(Some(Directive { name, arguments, lines }))
    }
}

/// Words between blanks; a quoted text is one, and what follows `#` is none.
fn words(text: &str) -> Vec<Token> {
    let mut all = Vec::new();
    let (mut row, mut letters) = (1, text.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '\n' => row += 1,
            _ if letter.is_whitespace() => {}
            '#' => while letters.next_if(|letter| *letter != '\n').is_some() {},
            '"' => {
                let (begun, mut word) = (row, String::new());
                while let Some(letter) = letters.next() {
                    match letter {
                        '"' => break,
                        '\\' if letters.peek() == Some(&'"') => word.extend(letters.next()),
                        _ => {
                            row += usize::from(letter == '\n');
                            word.push(letter);
                        }
                    }
                }
                all.push(Token { row: (0, begun), line: begun, text: word });
            }
            _ => {
                let mut word = String::from(letter);
                while let Some(letter) = letters.next_if(|letter| !letter.is_whitespace()) {
                    word.push(letter);
                }
                all.push(Token { row: (0, row), line: row, text: word });
            }
        }
    }
    all
}

/// What stands as `(name) { … }`, and the rest.
fn snippets(words: Vec<Token>) -> (BTreeMap<String, Vec<Token>>, Vec<Token>) {
    let (mut found, mut rest) = (BTreeMap::new(), Vec::new());
    let (mut depth, mut words) = (0_usize, words.into_iter().peekable());
    while let Some(word) = words.next() {
        let name = word.text.strip_prefix('(').and_then(|name| name.strip_suffix(')'));
        let is_opened = words.peek().is_some_and(|next| next.text == "{");
        if let (Some(name), true, 0) = (name, is_opened, depth) {
            let mut body = Vec::new();
            words.next();
            let mut open = 1;
            for word in words.by_ref() {
                match word.text.as_str() {
                    "{" => open += 1,
                    "}" => open -= 1,
                    _ => {}
                }
                if open == 0 {
                    break;
                }
                body.push(word);
            }
            found.insert(name.to_owned(), body);
            continue;
        }
        match word.text.as_str() {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        rest.push(word);
    }
    (found, rest)
}

/// A snippet's words, with arguments in place of `{args[0]}`; or those of all files of a pattern.
fn imported(
    token: &Token,
    what: &str,
    arguments: &[String],
    snippets: &BTreeMap<String, Vec<Token>>,
    files: &BTreeMap<String, String>,
) -> Result<Vec<Token>, CorefileError> {
    if let Some(snippet) = snippets.get(what) {
        let filled = |word: &Token| {
            let text = arguments.iter().enumerate().fold(word.text.clone(), |text, (at, value)| {
                text.replace(&format!("{{args[{at}]}}"), value)
                    .replace(&format!("{{args.{at}}}"), value)
            });
            Token { text, ..word.clone() }
        };
        return Ok(snippet.iter().map(filled).collect());
    }
    // The folder is that of a volume, which the same ConfigMap fills: its other keys are the files.
    let pattern = what.rsplit('/').next().unwrap_or(what);
    let found: Vec<&String> =
        files.iter().filter(|(name, _)| fits(name, pattern)).map(|(_, text)| text).collect();
    // As CoreDNS has it: a pattern may fit nothing, a name may not.
    if found.is_empty() && !pattern.contains('*') {
        let problem = format!("there is neither a snippet nor a file {what}");
        return Err(token.wrong(&problem));
    }
    let text: String = found.into_iter().map(|text| format!("{text}\n")).collect();
    Ok(words(&text))
}

/// Whether a name is as a pattern with `*` has it.
fn fits(name: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(name) = name.strip_prefix(first) else { return false };
    (0..=name.len()).any(|at| name.get(at..).is_some_and(|tail| fits(tail, rest)))
}
