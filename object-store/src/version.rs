//! Which content of an object is meant.

use object_store::{ObjectMeta, PutResult};

/// The version of an object, as its store tells it: the ETag, and in some stores a number of its own.
///
/// Two contents of an object have different ETags. Stores form them in different ways, so they say nothing about equal contents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Version {
    /// The ETag, with its quotes.
    pub e_tag: Option<String>,
    /// The store's own version, if it has versions: S3's `versionId`, a generation in Google's.
    pub version: Option<String>,
}

impl Version {
    /// Whether the store told nothing.
    pub fn is_unknown(&self) -> bool {
        self.e_tag.is_none() && self.version.is_none()
    }

    /// Whether `found`, of a response, is this version. The ETag decides if it is known, and otherwise the version.
    pub(crate) fn is_same(&self, found: &Version) -> bool {
        if self.e_tag.is_some() {
            self.e_tag == found.e_tag
        } else {
            self.version == found.version
        }
    }

    /// The ETag to make a request conditional on. None for a weak one, which no condition matches.
    pub(crate) fn condition(&self) -> Option<String> {
        self.e_tag.clone().filter(|e_tag| !e_tag.starts_with("W/"))
    }

    /// Says which version it is, in a message.
    pub(crate) fn describe(&self) -> String {
        match (&self.e_tag, &self.version) {
            (Some(e_tag), _) => format!("ETag {e_tag}"),
            (None, Some(version)) => format!("version {version}"),
            (None, None) => "no version".into(),
        }
    }
}

impl From<&ObjectMeta> for Version {
    fn from(meta: &ObjectMeta) -> Version {
        Version {
            e_tag: meta.e_tag.clone(),
            version: meta.version.clone(),
        }
    }
}

impl From<PutResult> for Version {
    fn from(result: PutResult) -> Version {
        Version {
            e_tag: result.e_tag,
            version: result.version,
        }
    }
}
