//! Compile options, written as the protobuf message that PJRT wants.
//!
//! `PJRT_Client_Compile` takes a serialised `xla.CompileOptionsProto`. We set a handful of its
//! fields, so a protobuf library would be more code than these few lines. The field numbers
//! (protobuf field numbers never change their meaning once released):
//!
//! | message                       | field                      | number | wire type        |
//! |-------------------------------|----------------------------|--------|------------------|
//! | `CompileOptionsProto`         | `executable_build_options` | 3      | length-delimited |
//! | `CompileOptionsProto`         | `env_option_overrides`     | 7      | length-delimited |
//! | entry of the map above        | `key` (string)             | 1      | length-delimited |
//! | entry of the map above        | `value`                    | 2      | length-delimited |
//! | `OptionOverrideProto`         | `string_field`             | 1      | length-delimited |
//! | `OptionOverrideProto`         | `bool_field`               | 2      | varint           |
//! | `OptionOverrideProto`         | `int_field`                | 3      | varint           |
//! | `OptionOverrideProto`         | `double_field`             | 4      | fixed 64 bit     |
//! | `ExecutableBuildOptionsProto` | `device_ordinal`           | 1      | varint           |
//! | `ExecutableBuildOptionsProto` | `num_replicas`             | 4      | varint           |
//! | `ExecutableBuildOptionsProto` | `num_partitions`           | 5      | varint           |

/// The value of an XLA option in [`CompileOptions::overrides`].
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    /// A flag.
    Bool(bool),
    /// An integer, or the number of an enum's value.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// A string, or the name of an enum's value.
    String(String),
}

/// How a module is compiled. The default compiles for one device and leaves the rest to XLA.
#[derive(Debug, Clone, PartialEq)]
pub struct CompileOptions {
    /// Copies of the computation, each on its own device with its own data. 1 unless collectives
    /// run inside the module.
    pub num_replicas: i64,
    /// Devices that one copy of the computation is split over.
    pub num_partitions: i64,
    /// XLA debug options by name (`xla_…`, as in the environment variable `XLA_FLAGS`), for this
    /// compilation only. XLA answers an unknown name with an error.
    pub overrides: Vec<(String, OptionValue)>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self { num_replicas: 1, num_partitions: 1, overrides: Vec::new() }
    }
}

impl CompileOptions {
    /// The default, but for shortcuts that `platform` takes with numbers: on the CPU, XLA's
    /// maximum and minimum lose a NaN, and roundings to a narrow type inside a fusion are elided,
    /// so that a fused program's result would differ from its ops' one by one.
    pub fn faithful(platform: &str) -> Self {
        let options = CompileOptions::default();
        if platform != "cpu" {
            return options;
        }
        options
            .with_override("xla_cpu_enable_fast_min_max", OptionValue::Bool(false))
            .with_override("xla_allow_excess_precision", OptionValue::Bool(false))
    }

    /// Compiles sooner, for modules of a few operations, with no measurable difference in the code's
    /// speed (a single operation gives LLVM little to find). Nothing here changes how a function is
    /// computed: random numbers are the same bits in every mode.
    #[must_use]
    pub fn quick(self, platform: &str) -> Self {
        if platform != "cpu" {
            return self;
        }
        self.with_override("xla_cpu_parallel_codegen_split_count", OptionValue::Int(1))
            .with_override("xla_llvm_disable_expensive_passes", OptionValue::Bool(true))
    }

    /// Adds one XLA debug option.
    #[must_use]
    pub fn with_override(mut self, name: impl Into<String>, value: OptionValue) -> Self {
        self.overrides.push((name.into(), value));
        self
    }

    /// These options as a serialised `xla.CompileOptionsProto`. The bytes depend on the options
    /// alone, so they can be part of a cache key.
    pub fn encode(&self) -> Vec<u8> {
        let mut build = Message::default();
        // -1: not bound to a device, the client's default assignment decides.
        build.varint(1, -1);
        build.varint(4, self.num_replicas);
        build.varint(5, self.num_partitions);

        let mut options = Message::default();
        options.bytes(3, &build.0);
        for (name, value) in &self.overrides {
            let mut encoded = Message::default();
            match value {
                OptionValue::String(v) => encoded.bytes(1, v.as_bytes()),
                OptionValue::Bool(v) => encoded.varint(2, i64::from(*v)),
                OptionValue::Int(v) => encoded.varint(3, *v),
                OptionValue::Double(v) => encoded.fixed64(4, v.to_bits()),
            }
            let mut entry = Message::default();
            entry.bytes(1, name.as_bytes());
            entry.bytes(2, &encoded.0);
            options.bytes(7, &entry.0);
        }
        options.0
    }
}

/// A protobuf message being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    const VARINT: u64 = 0;
    const FIXED64: u64 = 1;
    const LENGTH_DELIMITED: u64 = 2;

    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u64, wire_type: u64) {
        self.raw_varint(field << 3 | wire_type);
    }

    fn varint(&mut self, field: u64, value: i64) {
        self.tag(field, Self::VARINT);
        // Negative int64 values travel as their two's complement, in ten bytes.
        self.raw_varint(value as u64);
    }

    fn fixed64(&mut self, field: u64, bits: u64) {
        self.tag(field, Self::FIXED64);
        self.0.extend_from_slice(&bits.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.tag(field, Self::LENGTH_DELIMITED);
        self.raw_varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_options_have_the_documented_bytes() {
        let minus_one = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let mut expected = vec![0x1a, 15, 0x08];
        expected.extend(minus_one);
        expected.extend([0x20, 1, 0x28, 1]);
        assert_eq!(CompileOptions::default().encode(), expected);
    }

    #[test]
    fn an_override_is_a_map_entry() {
        let plain = CompileOptions::default().encode();
        let options = CompileOptions::default().with_override("ab", OptionValue::Bool(true));
        let encoded = options.encode();
        assert_eq!(encoded[..plain.len()], plain);
        assert_eq!(encoded[plain.len()..], [0x3a, 8, 0x0a, 2, b'a', b'b', 0x12, 2, 0x10, 1]);
    }

    #[test]
    fn a_long_string_has_a_two_byte_length() {
        let mut message = Message::default();
        message.bytes(1, &[7; 300]);
        assert_eq!(message.0[..3], [0x0a, 0xac, 0x02]);
        assert_eq!(message.0.len(), 303);
    }
}
