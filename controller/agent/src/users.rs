//! Users whose passwords have changed, one by one.
//!
//! `ACL LOAD` would do it in one go, and close every connection of every named user, also where nothing has changed (Redis 7.0): that of a
//! replica is one of them. Redis 8 has crashed on it (redis/redis#15356). What is closed here are the connections of those who logged in
//! with a password that is no longer one, but for replication and the agents, whose next login shows the new one.

use std::sync::Arc;

use resp::{Command, Error};
use types::names::{USER_AGENT, USER_OPERATOR};

use crate::{
    config::{Passwords, Secret},
    digest, replication,
    shared::Shared,
};

/// The application's user is Redis' own.
const APPLICATION: &str = "default";

/// Gives users their new passwords and closes what was opened with old ones.
///
/// # Errors
/// When Redis does not answer or refuses; what was changed stays, and all of it may be repeated.
pub async fn change(shared: &Arc<Shared>, old: &Passwords, new: &Passwords) -> Result<(), Error> {
    let commands = commands(old, new, shared.lets_old_in());
    if commands.is_empty() {
        return Ok(());
    }
    let mut connection = shared.open_for_users().await?;
    for command in &commands {
        connection.command(command).await?;
    }
    tracing::info!("passwords changed and are in use");
    Ok(())
}

/// All passwords first: who is closed out logs in anew at once. Pure.
fn commands(old: &Passwords, new: &Passwords, lets_old_in: bool) -> Vec<Command> {
    let all = [
        (APPLICATION, &old.application, &new.application),
        (USER_OPERATOR, &old.operator, &new.operator),
        (USER_AGENT, &old.agent, &new.agent),
    ];
    let replica = (old.replica != new.replica).then(|| replication::accepting(new, lets_old_in));
    let changed = || all.iter().filter(|(_, before, after)| before != after);
    let set = changed().map(|(user, _, after)| password(user, after));
    let is_closed = |user: &str| user == APPLICATION || user == USER_OPERATOR;
    let close = changed().filter(|(user, ..)| is_closed(user)).map(|(user, ..)| closing(user));
    set.chain(replica).chain(close).collect()
}

fn password(user: &str, secret: &Secret) -> Command {
    let hash = format!("#{}", digest::sha256_hex(secret.expose().as_bytes()));
    Command::new("ACL").args(["SETUSER", user, "resetpass", &hash])
}

fn closing(user: &str) -> Command {
    Command::new("CLIENT").args(["KILL", "USER", user])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_users_whose_passwords_changed_are_touched() {
        let [old, new] = ["old", "new"].map(Secret::new);
        let before = Passwords {
            application: old.clone(),
            operator: old.clone(),
            agent: old.clone(),
            replica: old.clone(),
            replica_of_all: old.clone(),
        };
        assert_eq!(commands(&before, &before, true), []);
        let application = Passwords { application: new.clone(), ..before.clone() };
        assert_eq!(commands(&before, &application, false), [password("default", &new), closing("default")]);
        let internal = Passwords { operator: new.clone(), agent: new.clone(), replica: new.clone(), ..before.clone() };
        let users = [USER_OPERATOR, USER_AGENT].map(|user| password(user, &new));
        for lets_old_in in [false, true] {
            let then = [replication::accepting(&internal, lets_old_in), closing(USER_OPERATOR)];
            let expected: Vec<Command> = users.iter().cloned().chain(then).collect();
            assert_eq!(commands(&before, &internal, lets_old_in), expected);
        }
    }
}
