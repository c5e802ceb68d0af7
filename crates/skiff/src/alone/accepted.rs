//! Flags of upstream's that mean nothing here: they are understood, and those who give them hear that
//! they do nothing.
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::marker::PhantomData;

/// A component's.
pub trait Upstreams: Send + Sync + 'static {
    const FLAGS: &[&str];
}

/// Those that were given.
#[derive(Debug)]
pub struct Accepted<U>(Vec<&'static str>, PhantomData<U>);

impl<U: Upstreams> clap::Args for Accepted<U> {
    fn augment_args(command: Command) -> Command {
        let flag = |name: &&'static str| {
            let flag = Arg::new(*name).long(*name).hide(true).action(ArgAction::Append);
            // Switches may stand alone; no component has words that are no flags.
            flag.num_args(0..=1).allow_negative_numbers(true).default_missing_value("true")
        };
        command.args(U::FLAGS.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Accepted::<U>::augment_args(command)
    }
}

impl<U: Upstreams> clap::FromArgMatches for Accepted<U> {
    fn from_arg_matches(found: &ArgMatches) -> Result<Accepted<U>, clap::Error> {
        let given = U::FLAGS.iter().filter(|name| found.get_many::<String>(name).is_some());
        Ok(Accepted(given.copied().collect(), PhantomData))
    }

    fn update_from_arg_matches(&mut self, found: &ArgMatches) -> Result<(), clap::Error> {
        *self = Accepted::from_arg_matches(found)?;
        Ok(())
    }
}

impl<U> Accepted<U> {
    pub fn warn(&self) {
        for name in &self.0 {
            tracing::warn!("--{name} has no effect here");
        }
    }
}
