import java.util.Collections;
import java.util.Hashtable;
import javax.naming.Context;
import javax.naming.NamingException;
import javax.naming.directory.Attributes;
import javax.naming.directory.InitialDirContext;

/** Java's own resolver, which asks name servers over UDP: SERVER NAME... */
public class Names {
    public static void main(String[] arguments) throws NamingException {
        Hashtable<String, String> environment = new Hashtable<>();
        environment.put(Context.INITIAL_CONTEXT_FACTORY, "com.sun.jndi.dns.DnsContextFactory");
        environment.put(Context.PROVIDER_URL, "dns://" + arguments[0]);
        InitialDirContext context = new InitialDirContext(environment);
        for (int at = 1; at < arguments.length; at++) {
            String name = arguments[at];
            try {
                Attributes found = context.getAttributes(name, new String[] {"A"});
                int count = found.size() == 0 ? 0 : found.get("A").size();
                System.out.println(name + " " + (count > 9 ? count : Collections.list(found.getAll())));
            } catch (NamingException error) {
                System.out.println(name + " " + error.getClass().getSimpleName());
            }
        }
    }
}
