//! Authorities that take turns, and what is due of them. Pure.
//!
//! A new authority is believed before it signs, and an old one after it has signed for the last time: whoever checks a
//! certificate meanwhile believes both. How long each of these waits takes is the overlap, an argument: it must be longer
//! than a bundle takes to reach everybody. This module must not know where a ring is kept, nor who believes it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::identity::{renewal_due, validity};
use crate::{Authority, Error, Issued, Leaf, Result};

/// Names under which a ring is kept. The first three are those of a `kubernetes.io/tls` Secret as cert-manager writes it,
/// so that a ring can also be one that somebody else turns.
pub mod key {
    /// Certificate of who signs.
    pub const CERTIFICATE: &str = "tls.crt";
    /// Its private key.
    pub const PRIVATE_KEY: &str = "tls.key";
    /// Everybody who is to be believed.
    pub const BUNDLE: &str = "ca.crt";
    /// Certificate of who signs next.
    pub const NEXT_CERTIFICATE: &str = "next.crt";
    /// Its private key.
    pub const NEXT_PRIVATE_KEY: &str = "next.key";
    /// Certificate of who signed before.
    pub const PREVIOUS_CERTIFICATE: &str = "previous.crt";
    /// When the ring turned last, RFC 3339.
    pub const TURNED: &str = "turned";
}

/// Who signs, who will, and who did.
#[derive(Debug)]
pub struct Ring {
    signer: Authority,
    next: Option<Authority>,
    previous: Option<String>,
    turned: Timestamp,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The signer has used up two thirds of its life: make its successor, and let everybody believe it.
    Announce,
    /// Everybody has had the time to believe the successor: it signs from now on.
    Promote,
    /// Everybody has had the time to take new certificates: the predecessor is not believed any more.
    Retire,
    /// Nothing, for so long.
    Rest(Duration),
}

impl Ring {
    /// A first authority.
    pub fn create_at(common_name: &str, now: Timestamp) -> Result<Self> {
        Ok(Self { signer: Authority::create_at(common_name, now)?, next: None, previous: None, turned: now })
    }

    /// A ring of one, which somebody else keeps.
    #[must_use]
    pub fn of(signer: Authority) -> Self {
        Self { signer, next: None, previous: None, turned: Timestamp::UNIX_EPOCH }
    }

    /// Reads a ring back; `None`: there is none.
    pub fn decode(kept: &BTreeMap<String, String>) -> Result<Option<Self>> {
        let text = |name: &str| kept.get(name).map(String::as_str).filter(|text| !text.is_empty());
        let pair = |certificate, key| match (text(certificate), text(key)) {
            (Some(certificate), Some(key)) => Authority::load(certificate, key).map(Some),
            (None, None) => Ok(None),
            (Some(_), None) | (None, Some(_)) => Err(Error::BadCertificate("one of certificate and key is missing")),
        };
        let Some(signer) = pair(key::CERTIFICATE, key::PRIVATE_KEY)? else { return Ok(None) };
        let next = pair(key::NEXT_CERTIFICATE, key::NEXT_PRIVATE_KEY)?;
        let turned = text(key::TURNED).and_then(|text| text.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH);
        let previous = text(key::PREVIOUS_CERTIFICATE).map(str::to_owned);
        Ok(Some(Self { signer, next, previous, turned }))
    }

    /// As [`Ring::decode`] reads it. Holds private keys.
    #[must_use]
    pub fn encode(&self) -> BTreeMap<String, String> {
        let next = self.next.iter().flat_map(|next| {
            [(key::NEXT_CERTIFICATE, next.certificate_pem().to_owned()), (key::NEXT_PRIVATE_KEY, next.key_pem())]
        });
        let previous = self.previous.iter().map(|pem| (key::PREVIOUS_CERTIFICATE, pem.clone()));
        let always = [
            (key::CERTIFICATE, self.signer.certificate_pem().to_owned()),
            (key::PRIVATE_KEY, self.signer.key_pem()),
            (key::BUNDLE, self.bundle_pem()),
            (key::TURNED, self.turned.to_string()),
        ];
        always.into_iter().chain(next).chain(previous).map(|(name, text)| (name.to_owned(), text)).collect()
    }

    /// Whom to believe: the signer first, then its successor and its predecessor, as far as there are any.
    #[must_use]
    pub fn bundle_pem(&self) -> String {
        let next = self.next.as_ref().map(Authority::certificate_pem);
        [Some(self.signer.certificate_pem()), next, self.previous.as_deref()].into_iter().flatten().collect()
    }

    /// Who signs.
    #[must_use]
    pub fn signer(&self) -> &Authority {
        &self.signer
    }

    /// Who signs, alone.
    #[must_use]
    pub fn into_signer(self) -> Authority {
        self.signer
    }

    /// Takes an authority that somebody else has made for who signs next, and says whether that is news. While a turn is under
    /// way there is none: it is taken when that is over.
    #[must_use]
    pub fn adopt(self, given: Authority, now: Timestamp) -> (Self, bool) {
        let is_known = self.signer.certificate_pem() == given.certificate_pem();
        if is_known || self.next.is_some() || self.previous.is_some() {
            return (self, false);
        }
        (Self { next: Some(given), turned: now, ..self }, true)
    }

    /// The leaf as it was kept if it is still as wanted, of today's signer and not due for renewal; else a new one.
    pub fn keep_or_issue_at(&self, kept: Option<Issued>, leaf: &Leaf, now: Timestamp) -> Result<Issued> {
        match kept.filter(|kept| self.signer.still_good(kept, leaf, now)) {
            Some(kept) => Ok(kept),
            None => self.signer.issue_at(leaf, now),
        }
    }

    /// What is due `now`, if each wait is to take `overlap`. Whoever `asked` for another authority after the ring turned last
    /// gets one although the signer is not old.
    pub fn due(&self, overlap: Duration, asked: Option<Timestamp>, now: Timestamp) -> Result<Turn> {
        let waited = Duration::try_from(now.duration_since(self.turned)).unwrap_or_default();
        let left = overlap.saturating_sub(waited);
        let turn = |turn| if left.is_zero() { turn } else { Turn::Rest(left) };
        match (&self.next, &self.previous) {
            // A predecessor goes before a successor comes: at most two are believed for long.
            (None, Some(_)) => Ok(turn(Turn::Retire)),
            (Some(_), None | Some(_)) => Ok(turn(Turn::Promote)),
            (None, None) if asked.is_some_and(|asked| asked > self.turned && asked <= now) => Ok(Turn::Announce),
            (None, None) if renewal_due(self.signer.certificate_pem(), &now)? => Ok(Turn::Announce),
            (None, None) => {
                let validity = validity(self.signer.certificate_pem())?;
                let life = validity.not_after.saturating_sub(validity.not_before);
                let rest = validity.not_after.saturating_sub(life / 3).saturating_sub(now.as_second());
                Ok(Turn::Rest(Duration::from_secs(u64::try_from(rest).unwrap_or(0))))
            }
        }
    }

    /// The ring after a turn.
    pub fn turn(self, turn: Turn, now: Timestamp) -> Result<Self> {
        let turned = now;
        match (turn, self.next) {
            (Turn::Announce, None) => {
                let next = Some(Authority::create_at(&self.signer.common_name()?, now)?);
                Ok(Self { next, turned, ..self })
            }
            (Turn::Promote, Some(next)) => {
                let previous = Some(self.signer.certificate_pem().to_owned());
                Ok(Self { signer: next, next: None, previous, turned })
            }
            (Turn::Retire, next) => Ok(Self { next, previous: None, turned, ..self }),
            (Turn::Announce, next @ Some(_)) | (Turn::Promote, next @ None) | (Turn::Rest(_), next) => {
                Ok(Self { next, ..self })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Anchors, Shown, Usage};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    const HOUR: Duration = Duration::from_secs(3600);

    fn after(now: Timestamp, time: Duration) -> Timestamp {
        now.checked_add(time).unwrap()
    }

    fn leaf() -> Leaf {
        Leaf {
            common_name: "kun".to_owned(),
            organizations: Vec::new(),
            dns_names: vec!["kun.svc".to_owned()],
            ips: Vec::new(),
            usage: Usage::BOTH,
            lifetime: HOUR * 24 * 90,
        }
    }

    fn is_believed(bundle: &str, issued: &Issued, now: Timestamp) -> bool {
        let certificate = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
        let shown = Shown::of_chain(vec![certificate]).unwrap();
        Anchors::of_pem(bundle).unwrap().verify(&shown, now).is_ok()
    }

    #[test]
    fn a_ring_reads_back_what_it_wrote_in_every_phase() {
        let mut now = Timestamp::now();
        let mut ring = Ring::create_at("kun", now).unwrap();
        for turn in [Turn::Announce, Turn::Promote, Turn::Retire] {
            now = after(now, HOUR);
            ring = ring.turn(turn, now).unwrap();
            let kept = ring.encode();
            assert_eq!(Ring::decode(&kept).unwrap().unwrap().encode(), kept, "{turn:?}");
        }
        assert!(Ring::decode(&BTreeMap::new()).unwrap().is_none());
        let mut half = ring.encode();
        half.remove(key::PRIVATE_KEY);
        assert!(Ring::decode(&half).is_err());
    }

    #[test]
    fn nobody_ever_meets_a_certificate_he_does_not_believe_if_his_bundle_is_at_most_an_overlap_old() {
        let mut now = Timestamp::now();
        let mut ring = Ring::create_at("kun", now).unwrap();
        let first = ring.signer().certificate_pem().to_owned();
        let mut issued = ring.keep_or_issue_at(None, &leaf(), now).unwrap();
        let (mut bundles, mut turns) = (vec![(now, ring.bundle_pem())], Vec::new());
        let mut leaves = vec![(now, issued.clone())];
        for _ in 0..40 {
            let turn = ring.due(HOUR, None, now).unwrap();
            match turn {
                Turn::Rest(rest) => now = after(now, rest.max(Duration::from_secs(1))),
                Turn::Announce | Turn::Promote | Turn::Retire => turns.push(turn),
            }
            ring = ring.turn(turn, now).unwrap();
            issued = ring.keep_or_issue_at(Some(issued), &leaf(), now).unwrap();
            bundles.push((now, ring.bundle_pem()));
            leaves.push((now, issued.clone()));
            // Both sides may lag behind by just less than the overlap.
            let since = now.checked_sub(HOUR - Duration::from_secs(1)).unwrap();
            fn newest<T>(list: &[(Timestamp, T)], since: Timestamp) -> impl Iterator<Item = &T> {
                let from = list.iter().rposition(|(at, _)| *at <= since).unwrap_or(0);
                list.iter().skip(from).map(|(_, item)| item)
            }
            for bundle in newest(&bundles, since) {
                for leaf in newest(&leaves, since).filter(|leaf| is_current(leaf, now)) {
                    assert!(is_believed(bundle, leaf, now), "at {now}, after {turns:?}");
                }
            }
            if turns.len() == 3 {
                break;
            }
        }
        assert_eq!(turns, [Turn::Announce, Turn::Promote, Turn::Retire]);
        assert!(!ring.bundle_pem().contains(&first), "the first authority is not believed any more");
    }

    /// Not run out: renewing leaves in time is tested elsewhere.
    fn is_current(issued: &Issued, now: Timestamp) -> bool {
        validity(&issued.certificate_pem).unwrap().not_after > now.as_second()
    }

    #[test]
    fn an_authority_that_somebody_else_makes_is_believed_before_it_signs() {
        let now = Timestamp::now();
        let made = |name: &str| Authority::create_at(name, now).unwrap();
        let again = |authority: &Authority| Authority::load(authority.certificate_pem(), &authority.key_pem()).unwrap();
        let (first, second, third) = (made("agents"), made("agents"), made("agents"));
        let (ring, is_news) = Ring::of(again(&first)).adopt(again(&first), now);
        assert!(!is_news);
        let (ring, is_news) = ring.adopt(again(&second), now);
        assert!(is_news);
        assert_eq!(ring.bundle_pem(), format!("{}{}", first.certificate_pem(), second.certificate_pem()));
        assert_eq!(ring.signer().certificate_pem(), first.certificate_pem());
        // Somebody in a hurry makes another one: it has to wait until this turn is over.
        let (ring, is_news) = ring.adopt(again(&third), now);
        assert!(!is_news);
        assert!(matches!(ring.due(HOUR, None, now).unwrap(), Turn::Rest(_)));
        let later = after(now, HOUR);
        assert_eq!(ring.due(HOUR, None, later).unwrap(), Turn::Promote);
        let ring = ring.turn(Turn::Promote, later).unwrap();
        assert_eq!(ring.bundle_pem(), format!("{}{}", second.certificate_pem(), first.certificate_pem()));
        let (ring, is_news) = ring.adopt(again(&third), later);
        assert!(!is_news);
        let ring = ring.turn(Turn::Retire, after(later, HOUR)).unwrap();
        let (ring, is_news) = ring.adopt(third, after(later, HOUR));
        assert!(is_news);
        assert_eq!(ring.signer().certificate_pem(), second.certificate_pem());
    }

    #[test]
    fn of_a_chain_only_the_authority_itself_is_believed() {
        let now = Timestamp::now();
        let (authority, above) = (Authority::create_at("agents", now).unwrap(), Authority::create("company").unwrap());
        let chain = format!("{}{}", authority.certificate_pem(), above.certificate_pem());
        let loaded = Authority::load(&chain, &authority.key_pem()).unwrap();
        assert_eq!(Ring::of(loaded).bundle_pem(), authority.certificate_pem());
    }

    #[test]
    fn a_turn_that_is_not_due_changes_nothing() {
        let now = Timestamp::now();
        let ring = Ring::create_at("kun", now).unwrap();
        let kept = ring.encode();
        assert!(matches!(ring.due(HOUR, None, now).unwrap(), Turn::Rest(rest) if rest > HOUR * 24 * 365));
        let asked = |at| ring.due(HOUR, Some(at), after(now, HOUR)).unwrap();
        assert_eq!(asked(after(now, HOUR / 2)), Turn::Announce);
        assert!(matches!(asked(now), Turn::Rest(_)), "what was asked for before the last turn was done by it");
        assert!(matches!(asked(after(now, HOUR * 2)), Turn::Rest(_)), "what is asked for later is done later");
        let ring = ring.turn(Turn::Promote, now).unwrap();
        assert_eq!(ring.encode(), kept);
        let announced = ring.turn(Turn::Announce, now).unwrap();
        assert_eq!(announced.due(HOUR, None, after(now, HOUR / 4)).unwrap(), Turn::Rest(HOUR / 4 * 3));
        assert_eq!(announced.due(HOUR, None, after(now, HOUR)).unwrap(), Turn::Promote);
    }
}
