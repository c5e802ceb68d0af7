//! What may come next on a command line, as shells ask for it (`kubectl __complete get po`): candidates, one
//! a line, and last what the shell is to do with them, as cobra's scripts and ours read it.
//!
//! What is typed is read by the rules of cobra's `getCompletions`; `names` asks the server, `plugins` programs
//! of others, and `scripts` are what a shell runs.
mod names;
mod plugins;
pub mod scripts;

use crate::commands::{COMMANDS, Command};
use crate::failure::{Failure, Outcome};
use crate::flags::{self, Arguments, Flag, GLOBAL, Kind, Offer};
use crate::kuberc::Preferred;
use crate::session::Session;
use crate::{Found, find};
use names::Server;
use std::time::Duration;

/// What a command's words may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offers {
    /// Whatever a shell finds: files.
    Nothing,
    Words(&'static [&'static str]),
    /// Commands of kubectl.
    Commands,
    /// A type and then names, or `type/name`; types are these, or whatever the server has.
    Resources(&'static [&'static str]),
    /// The same for one object.
    Resource(&'static [&'static str]),
    /// One name of this type.
    Name(&'static str),
    /// A pod, or what has pods.
    Pod,
    /// The same, and then a container.
    PodAndContainer,
    /// The same, and then a port.
    PodAndPort,
    /// An entry of the kubeconfig.
    Entry(&'static str),
    /// A file, or one in a pod.
    Copied,
}

/// What a shell is told besides candidates: cobra's bits.
pub const NO_SPACE: u8 = 2;
pub const NO_FILES: u8 = 4;
const EXTENSIONS: u8 = 8;

const DIRECTIVES: [(u8, &str); 6] = [
    (1, "ShellCompDirectiveError"),
    (NO_SPACE, "ShellCompDirectiveNoSpace"),
    (NO_FILES, "ShellCompDirectiveNoFileComp"),
    (EXTENSIONS, "ShellCompDirectiveFilterFileExt"),
    (16, "ShellCompDirectiveFilterDirs"),
    (32, "ShellCompDirectiveKeepOrder"),
];

/// However slow a server is, nobody waits longer for a word; upstream's waits for ever.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Answer {
    /// Each may have a description behind a tab.
    candidates: Vec<String>,
    directive: u8,
    trouble: Option<String>,
}

impl Answer {
    fn of(candidates: Vec<String>, directive: u8) -> Answer {
        Answer { candidates, directive, trouble: None }
    }

    fn trouble(text: String) -> Answer {
        Answer { trouble: Some(text), ..Answer::default() }
    }
}

/// Answers for the words that a shell gave; the last of them is not complete.
pub async fn run(
    session: &mut Session,
    preferred: &Preferred,
    words: &[String],
    described: bool,
) -> Outcome {
    let Some((word, typed)) = words.split_last() else {
        return Err("requires at least 1 arg(s), only received 0".into());
    };
    let answer = match plugins::answer(typed, word) {
        Some(answer) => answer,
        None => Asked::read(preferred, typed, word).answer(session).await,
    };
    if let Some(text) = &answer.trouble {
        writeln!(session.err, "[Debug] [Error] {text}")?;
    }
    for candidate in &answer.candidates {
        let shown = if described { &**candidate } else { before_tab(candidate) };
        writeln!(session.out, "{}", shown.lines().next().unwrap_or_default().trim())?;
    }
    writeln!(session.out, ":{}", answer.directive)?;
    let names = DIRECTIVES.iter().filter(|(bit, _)| answer.directive & bit != 0);
    let names: Vec<&str> = names.map(|(_, name)| *name).collect();
    let names =
        if names.is_empty() { "ShellCompDirectiveDefault".to_owned() } else { names.join(", ") };
    Ok(writeln!(session.err, "Completion ended with directive: {names}")?)
}

fn before_tab(candidate: &str) -> &str {
    candidate.split('\t').next().unwrap_or_default()
}

/// Whether a description is wanted at all.
pub fn wants_descriptions() -> bool {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let said = variable("KUBECTL_COMPLETION_DESCRIPTIONS")
        .or_else(|| variable("COBRA_COMPLETION_DESCRIPTIONS"));
    said.and_then(|text| flags::is_true(&text)).unwrap_or(true)
}

/// What is asked for: a command, its words so far, and the one to be completed.
struct Asked<'a> {
    found: Found,
    /// The command's flags, its own before those of kubectl.
    all: Vec<&'static Flag>,
    arguments: Outcome<Arguments>,
    /// Whose value the last word is.
    flag: Option<&'static Flag>,
    unknown_flag: Option<String>,
    word: &'a str,
    /// The words before it, for messages.
    typed: &'a [String],
}

impl<'a> Asked<'a> {
    fn read(preferred: &Preferred, typed: &'a [String], word: &'a str) -> Asked<'a> {
        let found = find(typed, preferred.alias.as_ref());
        let mut all = flags::of_command(found.command.map_or(&[][..], |command| command.flags));
        all.retain(|flag| flag.gate.is_open());
        let mut asked = Asked {
            arguments: Err(Failure::exit(1)),
            flag: None,
            unknown_flag: None,
            found,
            all,
            word,
            typed,
        };
        let mut words = asked.found.words.clone();
        asked.find_flag(&mut words);
        asked.arguments = Arguments::read(&asked.found.name, &asked.all, &preferred.values, &words);
        asked
    }

    /// Whether the last word is a flag's value: `--flag=va`, or `va` behind a flag that takes one.
    fn find_flag(&mut self, words: &mut Vec<String>) {
        let by_name = |all: &[&'static Flag], name: &str| match name.chars().collect::<Vec<_>>()[..]
        {
            [letter] => all.iter().find(|flag| flag.short == letter).copied(),
            _ => flags::named(all, name),
        };
        // Of letters in one word the last has the value.
        let name_in = |word: &str| match word.strip_prefix("--") {
            Some(long) => long.to_owned(),
            None => word.chars().next_back().map(String::from).unwrap_or_default(),
        };
        if self.word.starts_with('-') {
            let Some((before, value)) = self.word.split_once('=') else { return };
            let name = name_in(before);
            self.flag = by_name(&self.all, &name);
            match self.flag {
                Some(_) => self.word = value,
                None => self.unknown_flag = Some(name),
            }
            return;
        }
        let Some(last) = words.last().filter(|word| is_flag(word) && !word.contains('=')) else {
            return;
        };
        let name = name_in(last);
        match by_name(&self.all, &name) {
            Some(flag) if flag.takes_value() => {
                self.flag = Some(flag);
                words.pop();
            }
            Some(_) => {}
            None => self.unknown_flag = Some(name),
        }
    }

    async fn answer(self, session: &mut Session) -> Answer {
        if !self.found.is_known() {
            let typed = self.typed.join(" ");
            return Answer::trouble(format!("unable to find a command for arguments: [{typed}]"));
        }
        let arguments = match &self.arguments {
            Ok(arguments) => arguments,
            Err(failure) => {
                let text = match failure {
                    Failure::Usage { text, .. } => text.clone(),
                    other => other.text(),
                };
                let words = self.found.words.join(" ");
                return Answer::trouble(format!(
                    "Error while parsing flags from args [{words}]: {text}"
                ));
            }
        };
        // Behind `--` nothing is a flag.
        let has_flags = arguments.dash.is_none();
        if let Some(name) = self.unknown_flag.as_ref().filter(|_| has_flags) {
            let command = self.found.name.split(' ').next_back().unwrap_or_default();
            return Answer::trouble(format!(
                "Subcommand '{command}' does not support flag '{name}'"
            ));
        }
        if arguments.given("help") {
            return Answer::of(Vec::new(), NO_FILES);
        }
        if let Some(flag) = self.flag.filter(|_| has_flags) {
            return self.values(session, flag, arguments).await;
        }
        if self.flag.is_none()
            && self.word.starts_with('-')
            && has_flags
            && !self.word.contains('=')
        {
            let required = self.required(arguments);
            let all = if required.is_empty() { self.flags(arguments) } else { required };
            return Answer::of(all, NO_FILES);
        }
        let mut answer = Answer::default();
        if self.flag.is_none() {
            let own = self.found.command.map_or(&[][..], |command| command.flags);
            let has_own = own.iter().flat_map(|rows| rows.iter()).any(|f| arguments.given(f.name));
            if arguments.words.is_empty() && !has_own {
                let children = children(self.found.command);
                if !children.is_empty() {
                    answer.directive = NO_FILES;
                }
                answer.candidates.extend(self.commands(children));
                if self.typed.is_empty() {
                    answer.candidates.extend(plugins::first_words(self.word));
                    answer.candidates.sort();
                }
            }
            answer.candidates.extend(self.required(arguments));
        }
        self.words(session, arguments, answer).await
    }

    fn commands(&self, among: Vec<&Command>) -> Vec<String> {
        let fitting = among.into_iter().filter(|command| command.name.starts_with(self.word));
        fitting.map(|command| format!("{}\t{}", command.name, command.about)).collect()
    }

    /// The flags that have to be there and are not.
    fn required(&self, arguments: &Arguments) -> Vec<String> {
        let missing = |flag: &&&Flag| flag.required && !arguments.given(flag.name);
        let missing = self.all.iter().filter(missing);
        missing.flat_map(|flag| self.names_of(flag)).collect()
    }

    /// Kubectl's own flags and then the command's, without those that were given and can be only once.
    fn flags(&self, arguments: &Arguments) -> Vec<String> {
        let is_global = |flag: &Flag| GLOBAL.iter().any(|global| std::ptr::eq(global, flag));
        let is_open = |flag: &Flag| {
            matches!(flag.kind, Kind::List | Kind::Each) || !arguments.given(flag.name)
        };
        let mut all: Vec<(bool, &'static Flag)> = Vec::new();
        for flag in &self.all {
            // A command's flag hides kubectl's of the same name.
            let is_hidden = all.iter().any(|(_, other)| other.name == flag.name);
            let is_own = !is_global(flag) && self.found.command.is_some();
            if !is_hidden {
                all.push((is_own, flag));
            }
        }
        all.sort_by_key(|(is_own, flag)| (*is_own, flag.name));
        let open = all.into_iter().filter(|(_, flag)| is_open(flag));
        open.flat_map(|(_, flag)| self.names_of(flag)).collect()
    }

    fn names_of(&self, flag: &Flag) -> Vec<String> {
        if flag.hidden {
            return Vec::new();
        }
        let mut names = vec![format!("--{}", flag.name)];
        if flag.short != '\0' {
            names.push(format!("-{}", flag.short));
        }
        names.retain(|name| name.starts_with(self.word));
        names.into_iter().map(|name| format!("{name}\t{}", flag.about)).collect()
    }

    /// What a flag's value may be.
    async fn values(&self, session: &mut Session, flag: &Flag, arguments: &Arguments) -> Answer {
        let word = self.word;
        match flag.offer {
            Offer::Anything => Answer::default(),
            Offer::Files(extensions) => {
                let all = extensions.iter().map(|one| (*one).to_owned());
                Answer::of(all.collect(), EXTENSIONS)
            }
            Offer::Words(words) => Answer::of(fitting(words, word), NO_FILES),
            Offer::Entries(list) => Answer::of(names::entries(arguments, list, word), NO_FILES),
            Offer::Objects(resource) => {
                let asked = async |server: Server| server.names(&[resource], word).await;
                Answer::of(self.ask(session, arguments, asked).await, NO_FILES)
            }
            Offer::Containers => {
                let Some(pod) = arguments.words.first() else {
                    return Answer::of(Vec::new(), NO_FILES);
                };
                let asked = async |server: Server| server.containers(pod, word).await;
                Answer::of(self.ask(session, arguments, asked).await, NO_FILES)
            }
        }
    }

    /// What the command's next word may be, behind what may stand there anyway.
    async fn words(
        &self,
        session: &mut Session,
        arguments: &Arguments,
        mut answer: Answer,
    ) -> Answer {
        let (word, before) = (self.word, &arguments.words[..]);
        let found = match self.found.command.map_or(Offers::Nothing, |command| command.offers) {
            Offers::Nothing => return answer,
            Offers::Words(words) => {
                if before.is_empty() {
                    answer.candidates.extend(fitting(words, word));
                    answer.directive = NO_FILES;
                }
                return answer;
            }
            Offers::Commands => {
                let found = find(before, None);
                let among = if found.is_known() { children(found.command) } else { Vec::new() };
                (self.commands(among), NO_FILES)
            }
            Offers::Entry(list) if before.is_empty() => {
                (names::entries(arguments, list, word), NO_FILES)
            }
            Offers::Name(resource) if before.is_empty() => {
                let asked = async |server: Server| server.names(&[resource], word).await;
                (self.ask(session, arguments, asked).await, NO_FILES)
            }
            Offers::Entry(_) | Offers::Name(_) => (Vec::new(), NO_FILES),
            Offers::Resources(types) => {
                let asked = async |server: Server| server.typed(types, true, before, word).await;
                self.ask(session, arguments, asked).await
            }
            Offers::Resource(types) => {
                let asked = async |server: Server| server.typed(types, false, before, word).await;
                self.ask(session, arguments, asked).await
            }
            Offers::Pod | Offers::PodAndContainer | Offers::PodAndPort if before.is_empty() => {
                let asked = async |server: Server| server.pods(word).await;
                self.ask(session, arguments, asked).await
            }
            Offers::PodAndContainer if before.len() == 1 => {
                let asked = async |server: Server| server.containers(&before[0], word).await;
                (self.ask(session, arguments, asked).await, NO_FILES)
            }
            Offers::PodAndPort if before.len() == 1 => {
                let asked = async |server: Server| server.ports(&before[0], word).await;
                (self.ask(session, arguments, asked).await, NO_FILES)
            }
            Offers::Pod | Offers::PodAndContainer | Offers::PodAndPort => (Vec::new(), NO_FILES),
            Offers::Copied if before.is_empty() => {
                let asked = async |server: Server| server.copied(word).await;
                (self.ask(session, arguments, asked).await, NO_SPACE)
            }
            Offers::Copied => (Vec::new(), NO_SPACE),
        };
        answer.candidates.extend(found.0);
        answer.directive = found.1;
        answer
    }

    /// What a server says in time; nothing if there is none.
    async fn ask<T: Unanswered>(
        &self,
        session: &mut Session,
        arguments: &Arguments,
        ask: impl AsyncFnOnce(Server) -> T,
    ) -> T {
        let mut arguments = arguments.clone();
        let patience = match crate::cluster::timeout(&arguments) {
            Ok(given) if arguments.given("request-timeout") => given.min(PATIENCE * 12),
            _ => {
                arguments.put("request-timeout", format!("{}s", PATIENCE.as_secs()));
                PATIENCE
            }
        };
        let asked = async {
            let cluster = session.cluster(&arguments).ok()?;
            Some(ask(Server(cluster)).await)
        };
        let answer = tokio::time::timeout(patience, asked).await;
        answer.ok().flatten().unwrap_or_else(T::unanswered)
    }
}

/// What is said where no server answers.
trait Unanswered {
    fn unanswered() -> Self;
}

impl Unanswered for Vec<String> {
    fn unanswered() -> Vec<String> {
        Vec::new()
    }
}

impl Unanswered for (Vec<String>, u8) {
    fn unanswered() -> (Vec<String>, u8) {
        (Vec::new(), NO_FILES)
    }
}

fn fitting(words: &[&str], beginning: &str) -> Vec<String> {
    let fitting = words.iter().filter(|word| word.starts_with(beginning));
    fitting.map(|word| (*word).to_owned()).collect()
}

/// The commands below one, by name.
fn children(of: Option<&'static Command>) -> Vec<&'static Command> {
    let among = of.map_or(COMMANDS, |command| command.children);
    let mut all: Vec<&Command> =
        among.iter().copied().filter(|one| one.gate.is_open() && !one.hidden).collect();
    all.sort_by_key(|command| command.name);
    all
}

fn is_flag(word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(long) => !long.is_empty(),
        None => word.len() > 1 && word.starts_with('-'),
    }
}

#[cfg(test)]
mod tests;
