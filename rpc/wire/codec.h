#pragma once

/// Which C++ types can be arguments and results, and how they travel: docs/values.md has the table.
///
/// A struct of your own becomes one with a line behind its definition, outside of any namespace:
///
///     namespace app {
///     struct Point { double x = 0, y = 0; std::string label; };
///     }
///     SINEW_STRUCT(app::Point, x, y, label);
///
/// A class with private state, or one that wants checks or another form, gets a codec by hand:
///
///     template <>
///     struct sinew::Codec<app::Fraction> {
///       static void encode(ValueWriter& writer, const app::Fraction& value) {
///         ListWriter list = writer.list(2);
///         list.next().integer(value.numerator());
///         list.next().integer(value.denominator());
///       }
///       static app::Fraction decode(const ValueReader& reader) {
///         const ListReader list = reader.list(2);
///         const std::int64_t denominator = list.item(1).integer();
///         if (denominator == 0) reader.fail("a fraction's denominator must not be 0");
///         return app::Fraction(list.item(0).integer(), denominator);
///       }
///       static std::string signature() { return "tuple<integer,integer>"; }
///     };
///
/// This header brings in neither Protocol Buffers nor LibTorch.

#include "sinew/rpc/wire/codec_basic.h"
#include "sinew/rpc/wire/codec_chrono.h"
#include "sinew/rpc/wire/codec_containers.h"
#include "sinew/rpc/wire/codec_maps.h"
#include "sinew/rpc/wire/codec_struct.h"
#include "sinew/rpc/wire/codec_traits.h"
#include "sinew/rpc/wire/codec_variant.h"
