//! The second round: policies and webhooks of the cluster's users may change an object after others have
//! seen it. Then the whole chain runs once more, and those among them that ask for it
//! (`reinvocationPolicy: IfNeeded`) are asked about what came after them. There is no third round.
use serde_json::Value;
use std::collections::BTreeSet;

/// Which round it is, and what those who may be asked again have seen.
#[derive(Default)]
pub struct Reinvocation {
    /// Somebody changed the object, so that there has to be a second round.
    pub wanted: bool,
    /// This is the second round.
    pub is_again: bool,
    pub policies: Seen,
    pub webhooks: Seen,
}

/// What of a request the policies, or the webhooks, have seen, from the first round to the second
/// (`apiserver/pkg/admission/plugin/policy/mutating/reinvocationcontext.go`, and the like of webhooks).
#[derive(Default)]
pub struct Seen {
    /// Those that were asked and want to be asked again if somebody changes the object after them.
    asked: BTreeSet<String>,
    /// Those among them after whom somebody did.
    to_ask_again: BTreeSet<String>,
    /// The object as the last of them left it; none if nobody is to be asked again for a change of it.
    left: Option<Value>,
}

impl Seen {
    /// A second round begins: others may have changed what was left.
    pub fn begin_again(&mut self, object: Option<&Value>) {
        if self.left.as_ref() != object {
            self.object_changed();
        }
    }

    /// Whether somebody is passed over in the second round: who was not asked in the first, or saw the
    /// object as it is.
    pub fn spares(&self, name: &str) -> bool {
        !self.to_ask_again.contains(name)
    }

    pub fn object_changed(&mut self) {
        self.to_ask_again.append(&mut self.asked);
    }

    /// Somebody has seen the object, and wants to see what others make of it.
    pub fn has_asked(&mut self, name: String) {
        self.asked.insert(name);
    }

    /// The round ends for all of them, with the object like this.
    pub fn leave(&mut self, object: Option<&Value>) {
        self.left = if self.asked.is_empty() { None } else { object.cloned() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The first round asks in this order, an asterisk for each who changes the object; then the object becomes
    /// what is said. Who is asked again?
    fn check(asked: &str, object: u64, expected: &str) {
        let mut seen = Seen::default();
        let mut now = 0;
        for one in asked.split_whitespace() {
            if one.ends_with('*') {
                now += 1;
                seen.object_changed();
            }
            seen.has_asked(one.trim_end_matches('*').to_owned());
        }
        seen.leave(Some(&json!(now)));
        seen.begin_again(Some(&json!(object)));
        let again = asked.split_whitespace().map(|one| one.trim_end_matches('*'));
        let again: Vec<&str> = again.filter(|one| !seen.spares(one)).collect();
        assert_eq!(again.join(" "), expected, "{asked}, then {object}");
    }

    #[test]
    fn who_saw_an_object_before_it_changed_is_asked_again() {
        check("", 0, "");
        check("a b", 0, "");
        check("a b*", 1, "a");
        check("a* b c*", 2, "a b");
        // Somebody else changed it after all of them.
        check("a b*", 7, "a b");
    }
}
