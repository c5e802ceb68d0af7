//! What keeps pods away from nodes, and which pods do not mind.
use k8s_openapi::api::core::v1 as core;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    pub key: Box<str>,
    pub value: Box<str>,
    pub effect: Effect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
    /// Of a version that we do not know: it keeps nobody away.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toleration {
    /// Empty: every taint.
    key: Box<str>,
    /// `None`: every effect.
    effect: Option<Effect>,
    /// `None`: every value. What has an operator that we do not know tolerates nothing.
    value: Option<Box<str>>,
    nothing: bool,
}

impl Effect {
    fn of(text: &str) -> Effect {
        match text {
            "NoSchedule" => Effect::NoSchedule,
            "PreferNoSchedule" => Effect::PreferNoSchedule,
            "NoExecute" => Effect::NoExecute,
            _ => Effect::Unknown,
        }
    }
}

impl Taint {
    pub fn of(taint: &core::Taint) -> Taint {
        Taint {
            key: taint.key.as_str().into(),
            value: taint.value.as_deref().unwrap_or_default().into(),
            effect: Effect::of(&taint.effect),
        }
    }

    /// What a cordoned node is taken to have.
    pub fn unschedulable() -> Taint {
        let key = "node.kubernetes.io/unschedulable".into();
        Taint { key, value: "".into(), effect: Effect::NoSchedule }
    }

    pub fn forbids(&self) -> bool {
        matches!(self.effect, Effect::NoSchedule | Effect::NoExecute)
    }

    pub fn is_tolerated(&self, tolerations: &[Toleration]) -> bool {
        tolerations.iter().any(|toleration| toleration.tolerates(self))
    }
}

impl Toleration {
    pub fn of(toleration: &core::Toleration) -> Toleration {
        let text =
            |text: &Option<String>| -> Box<str> { text.as_deref().unwrap_or_default().into() };
        let effect = toleration.effect.as_deref().filter(|effect| !effect.is_empty());
        let operator = toleration.operator.as_deref().unwrap_or_default();
        Toleration {
            key: text(&toleration.key),
            effect: effect.map(Effect::of),
            value: (operator != "Exists").then(|| text(&toleration.value)),
            nothing: !matches!(operator, "" | "Equal" | "Exists"),
        }
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        !self.nothing
            && (self.key.is_empty() || self.key == taint.key)
            && self.effect.is_none_or(|effect| effect == taint.effect)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
    }

    /// It is about the taints that nodes are compared by.
    pub fn is_about_preference(&self) -> bool {
        self.effect.is_none_or(|effect| effect == Effect::PreferNoSchedule)
    }
}
