#include "sinew/examples/common/yaml_config.h"

#include <yaml-cpp/yaml.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sinew/rpc/base/nearest_text.h"

namespace examples {
namespace {

constexpr const char* kFlag = "config";

class YamlConfig : public CLI::Config {
 public:
  explicit YamlConfig(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& file) const override {
    try {
      return items_of(YAML::Load(file));
    } catch (const YAML::Exception& error) {
      fail(error.mark, error.msg);
    }
  }

  // Nobody asks for it: the flag that prints a configuration is not there.
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return {}; }

 private:
  std::vector<CLI::ConfigItem> items_of(const YAML::Node& document) const {
    if (document.IsNull()) return {};
    if (!document.IsMap()) fail(document.Mark(), "it must have lines like 'epochs: 10'");
    std::vector<CLI::ConfigItem> found;
    std::set<std::string> seen;
    for (const auto& entry : document) {
      const std::string key = entry.first.as<std::string>();
      check_key(key, entry.first.Mark());
      if (!seen.insert(key).second) fail(entry.first.Mark(), key + " is there twice");
      if (!entry.second.IsScalar()) fail(entry.second.Mark(), key + " takes one value");
      CLI::ConfigItem item;
      item.name = key;
      item.inputs = {entry.second.Scalar()};
      found.push_back(std::move(item));
    }
    return found;
  }

  void check_key(const std::string& key, const YAML::Mark& mark) const {
    std::vector<std::string> flags;
    for (const CLI::Option* option : app_.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        if (name == "help" || name == kFlag) continue;
        if (name == key) return;
        flags.push_back(name);
      }
    }
    const std::optional<std::string> nearest = sinew::nearest_text(key, flags);
    fail(mark, "there is no '" + key + "'" +
                   (nearest.has_value() ? "; did you mean '" + *nearest + "'?" : ""));
  }

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& why) const {
    throw CLI::ConfigError(app_.get_config_ptr()->as<std::string>() + ", line " +
                           std::to_string(mark.line + 1) + ": " + why);
  }

  const CLI::App& app_;
};

}  // namespace

void add_yaml_config(CLI::App& app) {
  app.set_config("--" + std::string(kFlag), "",
                 "YAML file with values of these flags, by their names without dashes");
  app.config_formatter(std::make_shared<YamlConfig>(app));
}

}  // namespace examples
