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

/// Has both passwords of the agents count, so that this one is let in whatever becomes of the rest. First of all: it is the agents' user that sets
/// parameters. `before` are the passwords in use, and those that were begun to be and may be in part.
///
/// # Errors
/// When Redis does not answer or refuses.
pub async fn prepare(shared: &Arc<Shared>, before: &[&Passwords], new: &Passwords) -> Result<(), Error> {
    send(shared, Vec::from_iter(both(before, new))).await
}

/// Gives users their new passwords and closes what was opened with old ones. The new ones are to be in use at once after that.
///
/// # Errors
/// When Redis does not answer or refuses; what was changed stays, and all of it, from [`prepare`] on, may be repeated.
pub async fn change(shared: &Arc<Shared>, before: &[&Passwords], new: &Passwords) -> Result<(), Error> {
    let commands = commands(before, new, shared.lets_old_in());
    let is_any = !commands.is_empty();
    send(shared, commands).await?;
    if is_any {
        tracing::info!("passwords changed and are in use");
    }
    Ok(())
}

async fn send(shared: &Arc<Shared>, commands: Vec<Command>) -> Result<(), Error> {
    if commands.is_empty() {
        return Ok(());
    }
    let mut connection = shared.open_for_users().await?;
    for command in &commands {
        connection.command(command).await?;
    }
    Ok(())
}

/// Pure. That which is in use is the first of those before.
fn both(before: &[&Passwords], new: &Passwords) -> Option<Command> {
    let in_use = before.first().filter(|_| changes(before, new, |all| &all.agent))?;
    let both = [&in_use.agent, &new.agent].map(hash);
    Some(Command::new("ACL").args(["SETUSER", USER_AGENT, "resetpass"]).args(both))
}

/// All passwords first: who is closed out logs in anew at once. But that of the agents comes last: until then what breaks off can be tried again
/// with the one in use. Pure.
fn commands(before: &[&Passwords], new: &Passwords, lets_old_in: bool) -> Vec<Command> {
    let changes = |of: fn(&Passwords) -> &Secret| changes(before, new, of);
    let closed = [
        (APPLICATION, &new.application, changes(|all| &all.application)),
        (USER_OPERATOR, &new.operator, changes(|all| &all.operator)),
    ];
    let closed = || closed.iter().filter(|(.., changes)| *changes);
    let set = closed().map(|(user, secret, _)| password(user, secret));
    let replica = changes(|all| &all.replica).then(|| replication::accepting(new, lets_old_in));
    let close = closed().map(|(user, ..)| closing(user));
    let agent = changes(|all| &all.agent).then(|| password(USER_AGENT, &new.agent));
    set.chain(replica).chain(close).chain(agent).collect()
}

/// Whether a password is another one than what is in use, or may be.
fn changes(before: &[&Passwords], new: &Passwords, of: fn(&Passwords) -> &Secret) -> bool {
    before.iter().any(|before| of(before) != of(new))
}

fn password(user: &str, secret: &Secret) -> Command {
    Command::new("ACL").args(["SETUSER", user, "resetpass", &hash(secret)])
}

fn hash(secret: &Secret) -> String {
    format!("#{}", digest::sha256_hex(secret.expose().as_bytes()))
}

fn closing(user: &str) -> Command {
    Command::new("CLIENT").args(["KILL", "USER", user])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use std::collections::BTreeMap;

    use super::*;

    fn passwords(internal: &str, application: &str) -> Passwords {
        let internal = Secret::new(internal);
        Passwords {
            application: Secret::new(application),
            operator: internal.clone(),
            agent: internal.clone(),
            replica: internal.clone(),
            replica_of_all: internal,
        }
    }

    #[test]
    fn only_users_whose_passwords_changed_are_touched() {
        let before = passwords("old", "old");
        assert_eq!((both(&[&before], &before), commands(&[&before], &before, true)), (None, vec![]));
        let application = passwords("old", "new");
        assert_eq!(both(&[&before], &application), None);
        let new = Secret::new("new");
        assert_eq!(commands(&[&before], &application, false), [password("default", &new), closing("default")]);
        let internal = passwords("new", "old");
        for lets_old_in in [false, true] {
            let replica = replication::accepting(&internal, lets_old_in);
            let [operator, agent] = [USER_OPERATOR, USER_AGENT].map(|user| password(user, &new));
            let expected = [operator, replica, closing(USER_OPERATOR), agent];
            assert_eq!(commands(&[&before], &internal, lets_old_in), expected);
        }
    }

    /// What a Redis takes of each user, after commands of which the rest was cut off.
    type Users = BTreeMap<String, Vec<String>>;

    fn obey(users: &mut Users, commands: &[Command]) {
        for command in commands {
            let mut wire = Vec::new();
            command.encode(&mut wire);
            let text = String::from_utf8(wire).unwrap();
            let words: Vec<&str> = text.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
            if let ["ACL", "SETUSER", user, "resetpass", hashes @ ..] = words.as_slice() {
                users.insert((*user).to_owned(), hashes.iter().map(|hash| (*hash).to_owned()).collect());
            }
        }
    }

    /// Before, the agents' password was changed in between, and what broke off after that was never gone on with.
    #[test]
    fn a_change_that_breaks_off_anywhere_locks_no_agent_out() {
        let [old, new] = ["old", "new"].map(|all| passwords(all, all));
        let all = |before: &[&Passwords], to: &Passwords| -> Vec<Command> {
            both(before, to).into_iter().chain(commands(before, to, false)).collect()
        };
        let whole = all(&[&old], &new);
        let is_let_in = |users: &Users| users[USER_AGENT].contains(&hash(&old.agent));
        for cut in 0..=whole.len() {
            let mut cut_off = Users::from([(USER_AGENT.to_owned(), vec![hash(&old.agent)])]);
            obey(&mut cut_off, &whole[..cut]);
            // It is tried again, or the passwords of before are there again.
            for to in [&new, &old] {
                let again = all(&[&old, &new], to);
                let mut users = cut_off.clone();
                obey(&mut users, &again[..1]);
                assert!(is_let_in(&users), "{cut}: it sets parameters now");
                obey(&mut users, &again[1..again.len() - 1]);
                assert!(is_let_in(&users), "{cut}: until the end");
                obey(&mut users, &again[again.len() - 1..]);
                let users: Vec<Vec<String>> = users.into_values().collect();
                assert_eq!(users, vec![vec![hash(&to.agent)]; 4], "{cut}");
            }
        }
    }
}
