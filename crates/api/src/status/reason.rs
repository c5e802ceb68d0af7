//! The machine-readable reason of a failure.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! reasons {
    ($($name:ident $text:literal $code:literal)*) => {
        /// Why a request failed. A client acts on this, not on the message.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub enum Reason {
            /// The server gave none: the empty string.
            #[default]
            Unknown,
            $($name,)*
            /// A reason of someone else's server.
            Other(String),
        }

        impl Reason {
            pub fn as_str(&self) -> &str {
                match self {
                    Reason::Unknown => "",
                    $(Reason::$name => $text,)*
                    Reason::Other(text) => text,
                }
            }

            /// The HTTP code that belongs to the reason.
            pub const fn code(&self) -> Option<i32> {
                match self {
                    Reason::Unknown | Reason::Other(_) => None,
                    $(Reason::$name => Some($code),)*
                }
            }
        }

        impl From<&str> for Reason {
            fn from(text: &str) -> Self {
                match text {
                    "" => Reason::Unknown,
                    $($text => Reason::$name,)*
                    other => Reason::Other(other.to_owned()),
                }
            }
        }
    };
}

reasons! {
    Unauthorized          "Unauthorized"          401
    Forbidden             "Forbidden"             403
    NotFound              "NotFound"              404
    AlreadyExists         "AlreadyExists"         409
    Conflict              "Conflict"              409
    Gone                  "Gone"                  410
    Expired               "Expired"               410
    Invalid               "Invalid"               422
    ServerTimeout         "ServerTimeout"         500
    StoreReadError        "StorageReadError"      500
    Timeout               "Timeout"               504
    TooManyRequests       "TooManyRequests"       429
    BadRequest            "BadRequest"            400
    MethodNotAllowed      "MethodNotAllowed"      405
    NotAcceptable         "NotAcceptable"         406
    RequestEntityTooLarge "RequestEntityTooLarge" 413
    UnsupportedMediaType  "UnsupportedMediaType"  415
    InternalError         "InternalError"         500
    ServiceUnavailable    "ServiceUnavailable"    503
}

impl Reason {
    pub fn is_known(&self) -> bool {
        !matches!(self, Reason::Unknown | Reason::Other(_))
    }

    pub fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Reason::from(Cow::<str>::deserialize(deserializer)?.as_ref()))
    }
}
