#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "sinew/rpc/wire/codec_containers.h"

namespace sinew {
namespace internal {

std::string map_signature(std::string_view key, std::string_view value);
[[noreturn]] void fail_repeated_item(const ValueReader& item);

template <class Map>
struct MapCodec {
  using Key = typename Map::key_type;
  using Mapped = typename Map::mapped_type;

  static void encode(ValueWriter& writer, const Map& value) {
    MapWriter map = writer.map(value.size());
    for (const auto& [key, mapped] : value) {
      {
        ValueWriter part = map.next_key();
        Codec<Key>::encode(part, key);
      }
      ValueWriter part = map.next_value();
      Codec<Mapped>::encode(part, mapped);
    }
  }
  static Map decode(const ValueReader& reader) {
    const MapReader map = reader.map();
    Map result;
    for (std::size_t i = 0; i < map.size(); ++i) {
      const ValueReader key_reader = map.key(i);
      Key key = Codec<Key>::decode(key_reader);
      Mapped mapped = Codec<Mapped>::decode(map.value(i));
      if (!result.emplace(std::move(key), std::move(mapped)).second) {
        fail_repeated_item(key_reader);
      }
    }
    return result;
  }
  static std::string signature() {
    return map_signature(Codec<Key>::signature(), Codec<Mapped>::signature());
  }
};

template <class Set>
struct SetCodec {
  using Item = typename Set::value_type;

  static void encode(ValueWriter& writer, const Set& value) {
    ListWriter list = writer.list(value.size());
    for (const Item& item : value) {
      ValueWriter part = list.next();
      Codec<Item>::encode(part, item);
    }
  }
  static Set decode(const ValueReader& reader) {
    const ListReader list = reader.list();
    Set result;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const ValueReader item = list.item(i);
      if (!result.insert(Codec<Item>::decode(item)).second) fail_repeated_item(item);
    }
    return result;
  }
  static std::string signature() { return list_signature(Codec<Item>::signature()); }
};

}  // namespace internal

template <class K, class V, class... Rest>
struct Codec<std::map<K, V, Rest...>, std::enable_if_t<are_wire_types_v<K, V>>>
    : internal::MapCodec<std::map<K, V, Rest...>> {};
template <class K, class V, class... Rest>
struct Codec<std::unordered_map<K, V, Rest...>, std::enable_if_t<are_wire_types_v<K, V>>>
    : internal::MapCodec<std::unordered_map<K, V, Rest...>> {};

template <class T, class... Rest>
struct Codec<std::set<T, Rest...>, std::enable_if_t<is_wire_type_v<T>>>
    : internal::SetCodec<std::set<T, Rest...>> {};
template <class T, class... Rest>
struct Codec<std::unordered_set<T, Rest...>, std::enable_if_t<is_wire_type_v<T>>>
    : internal::SetCodec<std::unordered_set<T, Rest...>> {};

}  // namespace sinew
